"""Files on a team's volume, in and out through a transfer pod."""
