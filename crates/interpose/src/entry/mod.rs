//! How calls come in, and where the real functions are.
//!
//! | file | one law |
//! |---|---|
//! | `thunk` | an entry notes where it was called from and goes on to its body, with all arguments as they were |
//! | `real` | the real functions, by wrapped name and by address |
//! | `search` | `dlsym` and `cuGetProcAddress`: who asks for a wrapped function gets the wrapper |
//! | `passed` | functions that are not wrapped and may matter: counted, and passed on |
//!
//! Nothing here knows what a call means.

pub(crate) mod passed;
pub(crate) mod real;
pub(crate) mod search;
pub(crate) mod thunk;
