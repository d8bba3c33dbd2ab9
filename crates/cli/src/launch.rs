//! From words and variables to a running command.

use crate::args::{Cli, Command};
use crate::commands;
use crate::exit::Ending;
use crate::options::{self, check_environment, normalise, read_config};
use crate::say;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::process::ExitCode;

/// Runs the program.
pub fn run(words: Vec<OsString>, variables: Vec<(OsString, OsString)>) -> ExitCode {
    let wants_json = words.iter().any(|w| w == "--json");
    let code = end(start(words, variables), wants_json);
    match say::failure() {
        Some(error) => {
            tell!("snowskin: the results could not be printed: {error}");
            ExitCode::FAILURE
        }
        None => code,
    }
}

/// Prints what is left to say and gives the exit code.
fn end(done: Result<(), Stop>, wants_json: bool) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Stop::Signal(number)) => ExitCode::from(128 + number),
        Err(Stop::Ending(ending)) => {
            ending.print(wants_json);
            ExitCode::from(ending.exit_code())
        }
        Err(Stop::Clap(error)) if wants_json && error.use_stderr() => {
            let text = error.render().to_string();
            let text = text.trim_start_matches("error: ").trim_end();
            let ending = Ending::Usage(text.to_owned());
            ending.print(true);
            ExitCode::from(ending.exit_code())
        }
        Err(Stop::Clap(error)) => {
            // Help and version go to stdout with code 0, everything else to stderr with code 2.
            if say::gone_is_done(error.print()).is_err() {
                return ExitCode::FAILURE;
            }
            ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
        }
    }
}

/// Why the program stops.
pub enum Stop {
    /// The command ended without success.
    Ending(Ending),
    /// A signal ended it.
    Signal(u8),
    /// The words could not be parsed, or help was asked for.
    Clap(Box<clap::Error>),
}

impl<E: Into<Ending>> From<E> for Stop {
    fn from(ending: E) -> Self {
        Stop::Ending(ending.into())
    }
}

impl From<clap::Error> for Stop {
    fn from(error: clap::Error) -> Self {
        Stop::Clap(Box::new(error))
    }
}

fn start(words: Vec<OsString>, variables: Vec<(OsString, OsString)>) -> Result<(), Stop> {
    let usage = |e: options::OptionsError| Stop::Ending(Ending::Usage(e.to_string()));
    let variables = options::text_variables(variables).map_err(usage)?;
    check_environment(&variables).map_err(usage)?;
    let words = normalise(options::text_words(words).map_err(usage)?);
    let (words, sources) = gather(words, &variables).map_err(usage)?;
    let matches = Cli::command()
        .try_get_matches_from(&words)
        .map_err(|e| name_nearest(e, &words))?;
    let cli = Cli::from_arg_matches(&matches)?;
    if cli.version {
        print_version(cli.common.json);
        return Ok(());
    }
    if cli.common.print_config {
        print_config(&matches, &sources, cli.common.json);
        return Ok(());
    }
    let Some(command) = cli.command else {
        say::gone_is_done(Cli::command().print_help())?;
        return Err(Stop::Ending(Ending::Usage("a command is missing".into())));
    };
    commands::run(command, &cli.common, &variables)
}

/// An unknown option or command always comes with the nearest known one, also when that is not near.
fn name_nearest(mut error: clap::Error, words: &[String]) -> clap::Error {
    let given = |error: &clap::Error, kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let names = Command::names();
    match error.kind() {
        ErrorKind::UnknownArgument if error.get(ContextKind::SuggestedArg).is_none() => {
            let command = words.iter().skip(1).find(|w| names.contains(w));
            let known = long_options(command.map_or("", String::as_str));
            let option = given(&error, ContextKind::InvalidArg);
            if let Some(option) = option.as_deref().and_then(|o| o.strip_prefix("--")) {
                let nearest = options::nearest(option, known.iter().map(String::as_str));
                let text = ContextValue::String(format!("--{nearest}"));
                error.insert(ContextKind::SuggestedArg, text);
            }
        }
        ErrorKind::InvalidSubcommand if error.get(ContextKind::SuggestedSubcommand).is_none() => {
            if let Some(word) = given(&error, ContextKind::InvalidSubcommand) {
                let nearest = options::nearest(&word, names.iter().map(String::as_str));
                let text = ContextValue::Strings(vec![nearest.to_owned()]);
                error.insert(ContextKind::SuggestedSubcommand, text);
            }
        }
        _ => {}
    }
    error
}

impl Command {
    fn names() -> Vec<String> {
        Cli::command()
            .get_subcommands()
            .map(|c| c.get_name().to_owned())
            .collect()
    }
}

/// Which long options a command has.
fn long_options(command: &str) -> Vec<String> {
    let cli = Cli::command();
    let own = cli
        .find_subcommand(command)
        .into_iter()
        .flat_map(clap::Command::get_arguments);
    let all = own.chain(cli.get_arguments());
    all.filter_map(|a| a.get_long())
        .map(str::to_owned)
        .collect()
}

/// Puts the words of the config file and of the environment before the user's own, so that the later win.
fn gather(
    words: Vec<String>,
    variables: &BTreeMap<String, String>,
) -> Result<(Vec<String>, BTreeMap<String, &'static str>), options::OptionsError> {
    let names = Command::names();
    let mut sources = BTreeMap::new();
    let Some(at) = words
        .iter()
        .skip(1)
        .position(|w| names.contains(w))
        .map(|i| i + 1)
    else {
        return Ok((words, sources));
    };
    let command = words.get(at).cloned().unwrap_or_default();
    let known = long_options(&command);
    let mut extra = Vec::new();
    let config =
        option_value(&words, "config").or_else(|| variables.get("SNOWSKIN_CONFIG").cloned());
    if let Some(path) = config {
        extra.extend(read_config(&PathBuf::from(path), &known)?);
        note(&mut sources, &extra, "config file");
    }
    let from_environment = environment_words(&command, &known, variables);
    note(&mut sources, &from_environment, "environment");
    extra.extend(from_environment);
    note(&mut sources, &words, "command line");
    let mut all = words;
    all.splice(at + 1..at + 1, extra);
    Ok((all, sources))
}

fn note(sources: &mut BTreeMap<String, &'static str>, words: &[String], source: &'static str) {
    for name in words.iter().filter_map(|w| w.strip_prefix("--")) {
        let name = name.split('=').next().unwrap_or_default();
        sources.insert(name.to_owned(), source);
    }
}

fn option_value(words: &[String], name: &str) -> Option<String> {
    let flag = format!("--{name}");
    let mut words = words.iter().take_while(|w| *w != "--");
    while let Some(word) = words.next() {
        if let Some(value) = word.strip_prefix(&flag) {
            return match value.strip_prefix('=') {
                Some(value) => Some(value.to_owned()),
                None if value.is_empty() => words.next().cloned(),
                None => continue,
            };
        }
    }
    None
}

fn environment_words(
    command: &str,
    known: &[String],
    variables: &BTreeMap<String, String>,
) -> Vec<String> {
    let mut words = Vec::new();
    let mut give = |option: &str, value: Option<String>| {
        if let Some(value) = value.filter(|v| !v.is_empty())
            && known.iter().any(|k| k == option)
        {
            words.push(format!("--{option}={value}"));
        }
    };
    let get = |name: &str| variables.get(name).cloned();
    // A workload goes to a running cluster only when it is told so by name: what is exported for
    // other commands must not fill that cluster with blocks, nor turn `--embedded` into it.
    if !["demo", "replay"].contains(&command) {
        give(
            "master",
            get("SNOWSKIN_MASTER").or_else(|| get("MOONCAKE_MASTER")),
        );
    }
    give("token-file", get("SNOWSKIN_TOKEN_FILE"));
    give(
        "timeout",
        get("SNOWSKIN_TIMEOUT_MS").map(|ms| format!("{ms}ms")),
    );
    give(
        "data-address",
        get("MC_TCP_BIND_ADDRESS")
            .filter(|host| !host.is_empty())
            .map(|host| any_port_of(&host)),
    );
    give(
        "rpc-timeout",
        get("MC_RPC_TIMEOUT_MS").map(|ms| format!("{ms}ms")),
    );
    give(
        "transfer-timeout",
        get("MC_TRANSFER_TIMEOUT").map(|seconds| format!("{seconds}s")),
    );
    give(
        "checksum",
        get("MOONCAKE_STORE_CHECKSUM").map(|on| checksum_word(&on).to_owned()),
    );
    words
}

/// A host of an address, an IPv6 literal in brackets.
fn any_port_of(host: &str) -> String {
    match host.parse::<Ipv6Addr>() {
        Ok(_) => format!("[{host}]:0"),
        Err(_) => format!("{host}:0"),
    }
}

/// Upstream's truth values; anything else is left for the parser to refuse.
fn checksum_word(on: &str) -> &str {
    match on.to_ascii_lowercase().as_str() {
        "1" | "true" | "on" | "yes" => "verify",
        "0" | "false" | "off" | "no" => "off",
        _ => on,
    }
}

fn print_version(json: bool) {
    let version = env!("CARGO_PKG_VERSION");
    let commit = option_env!("SNOWSKIN_COMMIT").unwrap_or("unknown");
    let wire = commands::wire_version();
    if json {
        say!(
            "{}",
            json!({"version": version, "commit": commit, "wire": wire, "disk_format": 1})
        );
    } else {
        say!("snowskin {version} (commit {commit}, wire {wire})");
    }
}

fn print_config(matches: &ArgMatches, sources: &BTreeMap<String, &'static str>, as_json: bool) {
    let Some((name, matches)) = matches.subcommand() else {
        return;
    };
    let cli = Cli::command();
    let Some(command) = cli.find_subcommand(name) else {
        return;
    };
    let mut out = Map::new();
    let common = cli.get_arguments().filter(|a| {
        ["timeout", "rpc-timeout", "transfer-timeout"].contains(&a.get_long().unwrap_or_default())
    });
    for argument in command.get_arguments().chain(common) {
        let Some(long) = argument.get_long() else {
            continue;
        };
        let id = argument.get_id().as_str();
        let Ok(Some(values)) = matches.try_get_raw(id) else {
            continue;
        };
        let values: Vec<String> = values.map(|v| v.to_string_lossy().into_owned()).collect();
        let source = match matches.value_source(id) {
            Some(ValueSource::DefaultValue) | None => "default",
            _ => sources.get(long).copied().unwrap_or("command line"),
        };
        out.insert(
            long.to_owned(),
            json!({"value": values.join(","), "source": source}),
        );
    }
    if as_json {
        say!("{}", Value::Object(out));
        return;
    }
    for (name, entry) in out {
        let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
        say!("{name} = {:?}  # {}", text("value"), text("source"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn the_command_line_wins_over_the_environment() {
        let variables = BTreeMap::from([("SNOWSKIN_MASTER".to_owned(), "a:1".to_owned())]);
        let (all, sources) = gather(words("snowskin stat --master=b:2"), &variables).unwrap();
        assert_eq!(all, words("snowskin stat --master=a:1 --master=b:2"));
        assert_eq!(sources.get("master"), Some(&"command line"));
        let cli = Cli::from_arg_matches(&Cli::command().get_matches_from(all)).unwrap();
        let Some(Command::Stat(stat)) = cli.command else {
            panic!()
        };
        assert_eq!(stat.client.master.as_deref(), Some("b:2"));
    }

    #[test]
    fn upstreams_variable_is_the_fall_back() {
        let variables = BTreeMap::from([("MOONCAKE_MASTER".to_owned(), "m:1".to_owned())]);
        let (all, _) = gather(words("snowskin ls"), &variables).unwrap();
        assert_eq!(all, words("snowskin ls --master=m:1"));
    }

    #[test]
    fn a_workload_does_not_follow_the_environment_to_a_running_cluster() {
        let variables = BTreeMap::from([
            ("SNOWSKIN_MASTER".to_owned(), "a:1".to_owned()),
            ("MOONCAKE_MASTER".to_owned(), "m:1".to_owned()),
        ]);
        for line in ["snowskin demo --embedded", "snowskin replay --trace t"] {
            let (all, _) = gather(words(line), &variables).unwrap();
            assert_eq!(all, words(line));
        }
        let both = words("snowskin demo --embedded --master a:1");
        let error = Cli::command().try_get_matches_from(both).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ArgumentConflict);
    }

    #[test]
    fn upstreams_time_outs_and_checksum_switch_are_honoured() {
        let variables = BTreeMap::from([
            ("MC_RPC_TIMEOUT_MS".to_owned(), "250".to_owned()),
            ("MC_TRANSFER_TIMEOUT".to_owned(), "7".to_owned()),
            ("MOONCAKE_STORE_CHECKSUM".to_owned(), "False".to_owned()),
        ]);
        let (all, _) = gather(words("snowskin get k"), &variables).unwrap();
        let cli = Cli::from_arg_matches(&Cli::command().get_matches_from(all)).unwrap();
        assert_eq!(cli.common.rpc_timeout, Some(Duration::from_millis(250)));
        assert_eq!(cli.common.transfer_timeout, Some(Duration::from_secs(7)));
        let (all, _) = gather(words("snowskin node"), &variables).unwrap();
        assert!(all.contains(&"--checksum=off".to_owned()), "{all:?}");
        let wrong = BTreeMap::from([("MC_RPC_TIMEOUT_MS".to_owned(), "soon".to_owned())]);
        let (all, _) = gather(words("snowskin ls"), &wrong).unwrap();
        assert!(Cli::command().try_get_matches_from(all).is_err());
    }

    #[test]
    fn a_bind_address_of_any_family_becomes_a_data_address() {
        for (host, words) in [
            (
                "10.0.0.5",
                vec!["snowskin", "node", "--data-address=10.0.0.5:0"],
            ),
            ("::1", vec!["snowskin", "node", "--data-address=[::1]:0"]),
            ("[::1]", vec!["snowskin", "node", "--data-address=[::1]:0"]),
            ("", vec!["snowskin", "node"]),
        ] {
            let variables = BTreeMap::from([("MC_TCP_BIND_ADDRESS".to_owned(), host.to_owned())]);
            let (all, _) = gather(vec!["snowskin".into(), "node".into()], &variables).unwrap();
            assert_eq!(all, words, "{host}");
        }
    }

    #[test]
    fn a_key_that_looks_like_the_config_option_is_a_key() {
        let line = words("snowskin put -- --config nowhere.toml");
        let (all, _) = gather(line.clone(), &BTreeMap::new()).unwrap();
        assert_eq!(all, line);
    }

    #[test]
    fn the_definition_of_the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
