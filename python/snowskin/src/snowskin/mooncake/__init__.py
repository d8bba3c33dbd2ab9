"""The compatible classes behind the import name `mooncake`; the wheel `snowskin-mooncake` re-exports them.

`store` has the store, `config` its configuration file, `buffer_pool` leases of staging memory, `aio` the asyncio
wrapper, `engine` the transfer engine, `tensor_header` the layout of stored tensors. Methods answer codes, as their
callers expect; `last_error()` says more.
"""
