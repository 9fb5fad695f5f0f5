"""The operations on a feed that are not its run, such as check, plan, status and verify."""
