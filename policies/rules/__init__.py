"""The rules of the policy pack: pure functions over plain data, free of pulumi_policy."""
