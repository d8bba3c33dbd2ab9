//! The master over loopback, with scripted peers.
#![allow(
    clippy::unwrap_used,
    reason = "a scripted peer that cannot go on fails its test"
)]

mod admin;
mod control;
mod embedded;
mod lifecycle;
mod peer;
mod strangers;

use snowskin_master::{Config, Master, Running};
use std::path::Path;

/// Options of a master on free ports.
fn config(dir: &Path) -> Config {
    Config {
        rpc_port: 0,
        metrics_port: Some(0),
        state_dir: Some(dir.to_owned()),
        ..Config::default()
    }
}

fn start(dir: &Path) -> Running {
    Master::start(&config(dir)).unwrap()
}
