// Package cloud keeps a stack's secrets under a key that AWS KMS encrypts. Other clouds are left out.
package cloud

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"

	keepers "gocloud.dev/secrets"
	_ "gocloud.dev/secrets/awskms"

	"github.com/pulumi/pulumi/pkg/v3/secrets"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/config"
	"github.com/pulumi/pulumi/sdk/v3/go/common/workspace"
)

// Type names this kind of manager in a stack's state.
const Type = "cloud"

const keyBytes = 32

// recorded is what the state holds: it must stay readable by a released Pulumi.
type recorded struct {
	URL string `json:"url"`
	Key []byte `json:"encryptedkey"`
}

type manager struct {
	state   json.RawMessage
	crypter config.Crypter
}

func (*manager) Type() string                  { return Type }
func (m *manager) State() json.RawMessage      { return m.state }
func (m *manager) Encrypter() config.Encrypter { return m.crypter }
func (m *manager) Decrypter() config.Decrypter { return m.crypter }

// NewCloudSecretsManagerFromState opens the key that a state names.
func NewCloudSecretsManagerFromState(state json.RawMessage) (secrets.Manager, error) {
	var found recorded
	if err := json.Unmarshal(state, &found); err != nil {
		return nil, fmt.Errorf("secrets provider in the state: %w", err)
	}
	return open(found)
}

// NewCloudSecretsManager opens the key of a stack file, or makes one for a new or changed provider.
func NewCloudSecretsManager(
	info *workspace.ProjectStack, url string, rotate bool,
) (secrets.Manager, error) {
	if other := os.Getenv("PULUMI_CLOUD_SECRET_OVERRIDE"); other != "" {
		url = other
	}
	var key []byte
	var err error
	if rotate || info.EncryptedKey == "" || info.SecretsProvider != url {
		key, err = newKey(url)
	} else {
		key, err = base64.StdEncoding.DecodeString(info.EncryptedKey)
	}
	if err != nil {
		return nil, err
	}
	write(info, recorded{URL: url, Key: key})
	return open(recorded{URL: url, Key: key})
}

// EditProjectStack writes the provider that a state names into a stack file.
func EditProjectStack(info *workspace.ProjectStack, state json.RawMessage) error {
	var found recorded
	if err := json.Unmarshal(state, &found); err != nil {
		return fmt.Errorf("secrets provider in the state: %w", err)
	}
	write(info, found)
	return nil
}

func write(info *workspace.ProjectStack, now recorded) {
	info.EncryptionSalt = "" // a passphrase's
	info.SecretsProvider = now.URL
	info.EncryptedKey = base64.StdEncoding.EncodeToString(now.Key)
}

func open(found recorded) (secrets.Manager, error) {
	ctx := context.Background()
	keeper, err := keepers.OpenKeeper(ctx, found.URL)
	if err != nil {
		return nil, err
	}
	key, err := keeper.Decrypt(ctx, found.Key)
	if err != nil {
		return nil, err
	}
	state, err := json.Marshal(found)
	if err != nil {
		return nil, err
	}
	crypter := config.NewSymmetricCrypter(key)
	return &manager{state, config.NewCiphertextToPlaintextCachedCrypter(crypter, crypter)}, nil
}

func newKey(url string) ([]byte, error) {
	ctx := context.Background()
	keeper, err := keepers.OpenKeeper(ctx, url)
	if err != nil {
		return nil, err
	}
	key := make([]byte, keyBytes)
	if _, err := rand.Read(key); err != nil {
		return nil, err
	}
	return keeper.Encrypt(ctx, key)
}
