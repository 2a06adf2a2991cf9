// A team and its run, on the Platform of another stack.
package main

import (
	"example.com/pulumi-trainyard/sdk/go/trainyard"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

func main() {
	pulumi.Run(func(ctx *pulumi.Context) error {
		lab, err := pulumi.NewStackReference(ctx, "organization/lab/prod", nil)
		if err != nil {
			return err
		}
		record := lab.GetStringOutput(pulumi.String("record"))
		research, err := trainyard.NewTeam(ctx, "research", &trainyard.TeamArgs{Name: "research", Platform: record})
		if err != nil {
			return err
		}
		program := &trainyard.ProgramSectionArgs{Command: []string{"python", "/app/train.py"}}
		document := trainyard.RunDocumentArgs{Name: "hello", Version: 1, Nodes: 2, GpusPerNode: 1, Image: "trainer", Program: program}
		_, err = trainyard.NewTrainingRun(ctx, "hello", &trainyard.TrainingRunArgs{Team: research.Record, Document: document})
		return err
	})
}
