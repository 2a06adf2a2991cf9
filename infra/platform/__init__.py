"""What every cluster gets, whatever provides it: queueing, priorities, operators."""
