"""State of a run in the memory of two nodes: after the loss of one, no step is done again and no storage is read.

After each step, or every few, each rank copies its shards of the state into memory that a keeper, a process of its
node, owns; the keeper sends them to the keeper of the next node while the ranks train. Keepers outlive the ranks.
When a node is lost, the ranks start again in their pods and read the newest snapshot from the keepers; if the gang
has to leave instead, the keepers write it to storage.

| module | what |
|---|---|
| wire.py | messages between ranks and keepers |
| slots.py | the two newest snapshots of a rank, in memory that its process can share |
| keeper.py | the process of a node: takes snapshots, sends them on, gives them out |
| inventory.py | which snapshot is complete, and where its parts are |
| flush.py | write the newest snapshot to storage |
| snapshots.py | a rank's side: copy the state, wait until two nodes have it (needs torch) |
| recovery.py | a rank's side: load the newest snapshot (needs torch) |

docs/peer-memory.md explains the use.
"""
