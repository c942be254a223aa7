"""The C back end: IR to C text; `program` lists the parts."""
