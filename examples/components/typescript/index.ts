import * as fs from "fs";
import * as pulumi from "@pulumi/pulumi";
import * as trainyard from "@pulumi/trainyard";

const config = "training/configs/hello.yaml";
const platform = new trainyard.Platform("platform", {
    cluster: { name: "lab" },
    nodePools: [{ name: "gpus", capacity: "on-demand", instanceTypes: ["g6.xlarge"], max: 2, zone: "us-east-1a" }],
    storage: { storageClass: "shared", checkpoints: "1Ti", datasets: "1Ti" },
    teams: [{ name: "research", tier: "research", quota: { cpu: "64", memory: "1Ti", gpus: 2 } }],
    images: { trainer: new pulumi.Config().require("image") },
});
const research = new trainyard.Team("research", { platform: platform.record, name: "research" });
const hello = new trainyard.TrainingRun("hello", {
    team: research.record,
    document: {
        name: "hello", version: 1, nodes: 2, gpusPerNode: 1, image: "trainer",
        config: "hello", dataset: { name: "stdlib", source: "stdlib" },
    },
    files: { [config]: fs.readFileSync(`../../../${config}`, "utf8") },
});
export const checkpoints = hello.checkpointUri;
