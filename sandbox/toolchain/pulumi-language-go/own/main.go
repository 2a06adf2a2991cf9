// Pulumi's language host for programs in Go: generates an SDK of a package, links it, and runs the program.
//
// The module proxy does not serve the module of Pulumi's own host. This one has the calls that `pulumi package add`,
// `gen-sdk`, `install`, `preview`, `up` and `destroy` make.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	gen "github.com/pulumi/pulumi/pkg/v3/codegen/go"
	"github.com/pulumi/pulumi/pkg/v3/codegen/schema"
	"github.com/pulumi/pulumi/sdk/v3/go/common/util/rpcutil"
	"github.com/pulumi/pulumi/sdk/v3/go/common/version"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	rpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"golang.org/x/mod/modfile"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
)

type host struct {
	rpc.UnimplementedLanguageRuntimeServer
	engine string
}

func (h *host) Handshake(
	_ context.Context, request *rpc.LanguageHandshakeRequest,
) (*rpc.LanguageHandshakeResponse, error) {
	h.engine = request.GetEngineAddress()
	return &rpc.LanguageHandshakeResponse{}, nil
}

func (h *host) GetPluginInfo(context.Context, *emptypb.Empty) (*rpc.PluginInfo, error) {
	return &rpc.PluginInfo{Version: version.Version}, nil
}

// GetRequiredPackages names none: the engine then asks for a plugin when its first resource is registered.
func (h *host) GetRequiredPackages(
	context.Context, *rpc.GetRequiredPackagesRequest,
) (*rpc.GetRequiredPackagesResponse, error) {
	return &rpc.GetRequiredPackagesResponse{}, nil
}

// GeneratePackage writes the SDK of a package.
func (h *host) GeneratePackage(
	_ context.Context, request *rpc.GeneratePackageRequest,
) (*rpc.GeneratePackageResponse, error) {
	loader, err := schema.NewLoaderClient(request.LoaderTarget)
	if err != nil {
		return nil, err
	}
	var spec schema.PackageSpec
	if err := json.Unmarshal([]byte(request.Schema), &spec); err != nil {
		return nil, err
	}
	bound, diagnostics, err := schema.BindSpec(spec, loader, schema.ValidationOptions{})
	if err != nil {
		return nil, err
	}
	if diagnostics.HasErrors() {
		return nil, diagnostics
	}
	files, err := gen.GeneratePackage("pulumi-language-go", bound, request.LocalDependencies)
	if err != nil {
		return nil, err
	}
	for name, content := range request.ExtraFiles {
		files[name] = content
	}
	for name, content := range files {
		path := filepath.Join(request.Directory, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return nil, err
		}
	}
	return &rpc.GeneratePackageResponse{}, nil
}

// Link makes the program's go.mod take the modules of SDKs from their folders.
func (h *host) Link(_ context.Context, request *rpc.LinkRequest) (*rpc.LinkResponse, error) {
	program := request.Info.ProgramDirectory
	for _, one := range request.Packages {
		content, err := os.ReadFile(filepath.Join(program, one.Path, "go.mod"))
		if err != nil {
			return nil, err
		}
		replacement := modfile.ModulePath(content) + "=./" + one.Path
		if _, err := goCommand(program, "mod", "edit", "-replace="+replacement); err != nil {
			return nil, err
		}
	}
	return &rpc.LinkResponse{}, nil
}

// InstallDependencies gets the modules that the program imports.
func (h *host) InstallDependencies(
	request *rpc.InstallDependenciesRequest, answers grpc.ServerStreamingServer[rpc.InstallDependenciesResponse],
) error {
	output, err := goCommand(request.Info.ProgramDirectory, "mod", "tidy")
	return errors.Join(err, answers.Send(&rpc.InstallDependenciesResponse{Stdout: output}))
}

// Run builds the program and runs it. It reports its own errors, and then exits with a code.
func (h *host) Run(ctx context.Context, request *rpc.RunRequest) (*rpc.RunResponse, error) {
	folder, err := os.MkdirTemp("", "pulumi-go-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	binary := filepath.Join(folder, "program")
	if _, err := goCommand(request.Info.ProgramDirectory, "build", "-o", binary, "."); err != nil {
		return &rpc.RunResponse{Error: err.Error()}, nil
	}
	config, err := json.Marshal(request.Config)
	if err != nil {
		return nil, err
	}
	secrets, err := json.Marshal(request.ConfigSecretKeys)
	if err != nil {
		return nil, err
	}
	program := exec.CommandContext(ctx, binary, request.Args...)
	program.Dir, program.Stdout, program.Stderr = request.Pwd, os.Stdout, os.Stderr
	program.Env = append(os.Environ(),
		pulumi.EnvOrganization+"="+request.Organization,
		pulumi.EnvProject+"="+request.Project,
		pulumi.EnvPulumiRootDirectory+"="+request.Info.RootDirectory,
		pulumi.EnvStack+"="+request.Stack,
		pulumi.EnvConfig+"="+string(config),
		pulumi.EnvConfigSecretKeys+"="+string(secrets),
		pulumi.EnvDryRun+"="+strconv.FormatBool(request.DryRun),
		pulumi.EnvParallel+"="+strconv.Itoa(int(request.Parallel)),
		pulumi.EnvMonitor+"="+request.MonitorAddress,
		pulumi.EnvEngine+"="+h.engine,
	)
	var exit *exec.ExitError
	if err := program.Run(); errors.As(err, &exit) {
		return &rpc.RunResponse{Error: fmt.Sprintf("the program exited with code %d", exit.ExitCode())}, nil
	} else if err != nil {
		return &rpc.RunResponse{Error: err.Error()}, nil
	}
	return &rpc.RunResponse{}, nil
}

// goCommand runs Go in a folder and returns its output, which an error has, too.
func goCommand(folder string, arguments ...string) ([]byte, error) {
	command := exec.Command("go", arguments...)
	command.Dir = folder
	output, err := command.CombinedOutput()
	if err != nil {
		return output, fmt.Errorf("go %s: %w: %s", strings.Join(arguments, " "), err, output)
	}
	return output, nil
}

func main() {
	served := &host{}
	if last := len(os.Args) - 1; last > 0 {
		served.engine = os.Args[last]
	}
	handle, err := rpcutil.ServeWithOptions(rpcutil.ServeOptions{
		Init: func(server *grpc.Server) error {
			rpc.RegisterLanguageRuntimeServer(server, served)
			return nil
		},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(handle.Port)
	if err := <-handle.Done; err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
