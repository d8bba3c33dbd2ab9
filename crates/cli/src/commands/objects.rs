//! `put get exists rm ls`: one object or key at a time, as people use them.

use crate::args::{Common, ExistsArgs, GetArgs, LsArgs, PutArgs, RmArgs};
use crate::commands::connect::client;
use crate::exit::{Ending, code_of, error_json};
use crate::say::gone_is_done;
use serde_json::{Value, json};
use snowskin_client::{
    CallOptions, ExistsOptions, GetOptions, Leases, Presence, PutOptions, RemoveManyOptions,
    RemoveOptions, Stored,
};
use snowskin_types::call::{Filter, PutMode};
use snowskin_types::error::Code;
use snowskin_types::key::escape;
use snowskin_types::object::Attributes;
use std::io::{Read, Write};
use std::path::Path;

fn print(json: bool, object: Value, text: impl FnOnce() -> String) {
    if json {
        say!("{object}");
    } else {
        say!("{}", text());
    }
}

fn read_input(file: Option<&Path>) -> Result<Vec<u8>, Ending> {
    match file.filter(|p| p.as_os_str() != "-") {
        Some(path) => std::fs::read(path).map_err(|e| {
            Ending::Usage(format!(
                "the file {} could not be read: {e}",
                path.display()
            ))
        }),
        None => {
            let mut bytes = Vec::new();
            std::io::stdin().lock().read_to_end(&mut bytes)?;
            Ok(bytes)
        }
    }
}

/// `snowskin put`
pub fn put(args: &PutArgs, common: &Common) -> Result<(), Ending> {
    let bytes = read_input(args.file.as_deref())?;
    let client = client(&args.client, common)?;
    let options = PutOptions {
        mode: if args.replace {
            PutMode::Replace
        } else {
            PutMode::IfAbsent
        },
        replicas: args.replicas,
        attributes: Attributes {
            hard_pin: args.pin,
            group: args.group.as_deref().map(Into::into),
            ..Attributes::default()
        },
        ..PutOptions::default()
    };
    let stored = client.put(&args.key, &bytes, &options)?;
    if let Stored::Written { version, replicas } = stored {
        let object = json!({
            "schema": "snowskin.put/1",
            "key": args.key,
            "size": bytes.len(),
            "version": version.to_string(),
            "replicas": replicas,
        });
        print(common.json, object, || {
            format!(
                "stored {} bytes under {:?}, {replicas} of {} replica(s)",
                bytes.len(),
                args.key,
                args.replicas
            )
        });
    }
    Ok(())
}

/// `snowskin get`
pub fn get(args: &GetArgs, common: &Common) -> Result<(), Ending> {
    let client = client(&args.client, common)?;
    let bytes = client.get(&args.key, &GetOptions::default())?;
    match &args.output {
        Some(path) => {
            write_whole(path, &bytes)?;
            let object = json!({"schema": "snowskin.get/1", "key": args.key, "size": bytes.len()});
            print(common.json, object, || {
                format!("{} bytes -> {}", bytes.len(), path.display())
            });
        }
        None => {
            let mut out = std::io::stdout().lock();
            gone_is_done(out.write_all(&bytes).and_then(|()| out.flush()))?;
        }
    }
    Ok(())
}

/// Writes a file that appears whole or not at all.
fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), Ending> {
    let wrong = |e: std::io::Error| {
        Ending::Usage(format!(
            "--output {} cannot be written: {e}",
            path.display()
        ))
    };
    let folder = path
        .parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    // A device or a pipe is written in place.
    if path.exists() && !path.is_file() {
        return std::fs::write(path, bytes).map_err(wrong);
    }
    let mut scratch = tempfile::NamedTempFile::new_in(folder).map_err(wrong)?;
    scratch.write_all(bytes).map_err(wrong)?;
    scratch.persist(path).map_err(|e| wrong(e.error))?;
    Ok(())
}

/// `snowskin exists`
pub fn exists(args: &ExistsArgs, common: &Common) -> Result<(), Ending> {
    let client = client(&args.client, common)?;
    let results = client.exists_batch(&args.keys, &ExistsOptions::default());
    let (mut missing, mut failed) = (false, None);
    let mut rows = Vec::new();
    for (key, result) in args.keys.iter().zip(results) {
        let (row, word) = match result {
            Ok(Presence::Here { size, lease }) => (
                json!({"key": key, "exists": true, "size": size, "lease_ms": lease.0}),
                "yes".to_owned(),
            ),
            Ok(Presence::Absent) => {
                missing = true;
                (json!({"key": key, "exists": false}), "no".to_owned())
            }
            Err(failure) => {
                let row = json!({"key": key, "error": error_json(&failure)});
                let word = failure.to_string();
                failed.get_or_insert(failure);
                (row, word)
            }
        };
        if !common.json {
            say!("{word}\t{key}");
        }
        rows.push(row);
    }
    if common.json {
        say!("{}", json!({"schema": "snowskin.exists/1", "keys": rows}));
    }
    match failed {
        Some(failure) if !common.json => Err(failure.into()),
        Some(failure) => Err(Ending::Printed(code_of(failure.code))),
        None if missing => Err(Ending::Missing),
        None => Ok(()),
    }
}

/// `snowskin rm`
pub fn rm(args: &RmArgs, common: &Common) -> Result<(), Ending> {
    let leases = if args.force {
        Leases::Override
    } else {
        Leases::Respect
    };
    let filter = match (&args.prefix, &args.regex, args.all) {
        (Some(prefix), _, _) => Some(Filter::Prefix(prefix.clone().into_bytes())),
        (_, Some(regex), _) => Some(Filter::Regex(regex.clone())),
        (_, _, true) => Some(Filter::All),
        _ => None,
    };
    let client = client(&args.client, common)?;
    if let Some(filter) = filter {
        let options = RemoveManyOptions {
            leases,
            ..RemoveManyOptions::default()
        };
        let swept = client.remove_many(&filter, &options)?;
        let object = json!({
            "schema": "snowskin.rm/1", "removed": swept.removed, "leased": swept.leased,
        });
        print(common.json, object, || {
            format!(
                "removed {}, kept {} under a lease",
                swept.removed, swept.leased
            )
        });
        // What a lease kept was asked for as well: the request was refused in part.
        return match swept.leased {
            0 => Ok(()),
            _ => Err(Ending::Printed(code_of(Code::ObjectHasLease))),
        };
    }
    let options = RemoveOptions {
        call: CallOptions::default(),
        leases,
    };
    let results = client.remove_batch(&args.keys, &options);
    let mut first = None;
    let mut rows = Vec::new();
    for (key, result) in args.keys.iter().zip(results) {
        let row = match &result {
            Ok(()) => json!({"key": key, "removed": true}),
            Err(failure) => json!({"key": key, "removed": false, "error": error_json(failure)}),
        };
        if !common.json {
            match &result {
                Ok(()) => say!("removed\t{key}"),
                Err(failure) => say!("kept\t{key}\t{}", failure.code.name()),
            }
        }
        rows.push(row);
        if let Err(failure) = result {
            first.get_or_insert(failure);
        }
    }
    if common.json {
        say!("{}", json!({"schema": "snowskin.rm/1", "keys": rows}));
    }
    match first {
        Some(failure) if common.json => Err(Ending::Printed(code_of(failure.code))),
        Some(failure) => Err(failure.into()),
        None => Ok(()),
    }
}

/// `snowskin ls`
pub fn ls(args: &LsArgs, common: &Common) -> Result<(), Ending> {
    let client = client(&args.client, common)?;
    let filter = match &args.prefix {
        Some(prefix) => Filter::Prefix(prefix.clone().into_bytes()),
        None => Filter::All,
    };
    let cursor = args.cursor.as_ref().map(String::as_bytes);
    let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let page = client.list(&filter, cursor, limit, &CallOptions::default())?;
    let keys: Vec<String> = page.keys.iter().map(escape).collect();
    let next = if page.more {
        keys.last().cloned()
    } else {
        None
    };
    if common.json {
        say!(
            "{}",
            json!({"schema": "snowskin.ls/1", "keys": keys, "cursor": next})
        );
        return Ok(());
    }
    for key in &keys {
        say!("{key}");
    }
    if let Some(next) = next {
        tell!("more follow; go on with --cursor {next:?}");
    }
    Ok(())
}
