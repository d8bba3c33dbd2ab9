//! The commands, one file each.

mod audit;
mod bench;
mod connect;
mod embedded;
mod gen_trace;
mod objects;
mod replay;
mod serve;
mod stat;
mod up;

use crate::args::{Command, Common};
use crate::exit::Ending;
use crate::launch::Stop;
use crate::options::is_unused;
use snowskin_runtime::telemetry::{self, Format};
use std::collections::BTreeMap;

/// Version of the wire protocol.
pub fn wire_version() -> u16 {
    snowskin_proto::hello::VERSION
}

/// Runs a command.
pub fn run(
    command: Command,
    common: &Common,
    variables: &BTreeMap<String, String>,
) -> Result<(), Stop> {
    start_log(&command, variables)?;
    tell_unused(variables);
    match command {
        Command::Master(args) => serve::master(&args, variables)?,
        Command::Node(args) => serve::node(&args, common.timeout)?,
        Command::Up(args) => up::run(&args)?,
        Command::GenTrace(args) => gen_trace::run(&args)?,
        Command::Demo(args) => replay::run(replay::Kind::Demo, &args, common)?,
        Command::Replay(args) => replay::run(replay::Kind::Replay, &args, common)?,
        Command::Bench(args) => bench::run(&args, common)?,
        Command::Put(args) => objects::put(&args, common)?,
        Command::Get(args) => objects::get(&args, common)?,
        Command::Exists(args) => objects::exists(&args, common)?,
        Command::Rm(args) => objects::rm(&args, common)?,
        Command::Ls(args) => objects::ls(&args, common)?,
        Command::Stat(args) => stat::run(&args, common)?,
        Command::Audit(args) => audit::run(&args, common)?,
    }
    Ok(())
}

/// What is logged without `SNOWSKIN_LOG`: servers tell what they do, commands that end by themselves only
/// what goes wrong.
fn usual_filter(command: &Command) -> &'static str {
    match command {
        Command::Master(_) | Command::Node(_) | Command::Up(_) => "info",
        _ => "warn",
    }
}

/// Names once what is set and has no effect here, so that nobody waits for it.
fn tell_unused(variables: &BTreeMap<String, String>) {
    let set = variables.iter().filter(|(_, value)| !value.is_empty());
    let unused: Vec<&str> = set
        .map(|(name, _)| name.as_str())
        .filter(|name| is_unused(name))
        .collect();
    if !unused.is_empty() {
        tracing::info!(variables = unused.join(", "), "not used by this build");
    }
}

fn start_log(command: &Command, variables: &BTreeMap<String, String>) -> Result<(), Ending> {
    let usage = |text: String| Ending::Usage(text);
    let format = match variables.get("SNOWSKIN_LOG_FORMAT").map(String::as_str) {
        None | Some("" | "text") => Format::Text,
        Some("json") => Format::Json,
        Some(other) => {
            return Err(usage(format!(
                "SNOWSKIN_LOG_FORMAT is {other:?}; allowed are text and json"
            )));
        }
    };
    let filter = variables
        .get("SNOWSKIN_LOG")
        .map(String::as_str)
        .filter(|f| !f.is_empty())
        .unwrap_or_else(|| usual_filter(command));
    telemetry::start(Some(filter), format).map_err(|e| usage(e.to_string()))
}
