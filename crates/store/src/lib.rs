#![forbid(unsafe_code)]

pub mod arena;
