//! What a trace does to a cache, and how well the cache did.

pub mod content;
pub mod policy_only;
pub mod run;
pub mod sizing;
pub mod tally;
