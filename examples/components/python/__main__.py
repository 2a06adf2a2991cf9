"""A platform on your cluster, a team and its first run; a checkout of Trainyard is on PYTHONPATH."""

from pathlib import Path

import pulumi

from components import Platform, Team, TrainingRun

CONFIG = "training/configs/hello.yaml"
gpus = {"name": "gpus", "capacity": "on-demand", "instanceTypes": ["g6.xlarge"]}
quota = {"cpu": "64", "memory": "1Ti", "gpus": 2}
inputs = {
    "cluster": {"name": "lab"},
    "nodePools": [gpus | {"max": 2, "zone": "us-east-1a"}],
    "storage": {"storageClass": "shared", "checkpoints": "1Ti", "datasets": "1Ti"},
    "teams": [{"name": "research", "tier": "research", "quota": quota}],
    "images": {"trainer": pulumi.Config().require("image")},
}
platform = Platform("platform", inputs)
research = Team("research", {"platform": platform.record, "name": "research"})
document = {"name": "hello", "version": 1, "nodes": 2, "gpusPerNode": 1, "image": "trainer"}
document |= {"config": "hello", "dataset": {"name": "stdlib", "source": "stdlib"}}
files = {CONFIG: (Path(__file__).parents[3] / CONFIG).read_text()}
TrainingRun("hello", {"team": research.record, "document": document, "files": files})
