"""What an AWS account needs once, before the first stack."""
