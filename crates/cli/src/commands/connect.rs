//! Opens the client that a command works with.

use crate::args::{ClientArgs, Common};
use crate::exit::Ending;
use snowskin_client::{Client, Config};
use snowskin_proto::hello::Token;
use snowskin_types::Tenant;
use std::path::Path;

/// Reads a token file; white space at its end is not part of the token.
pub fn token(file: Option<&Path>) -> Result<Token, Ending> {
    let Some(path) = file else {
        return Ok(Token::default());
    };
    let wrong = |what: String| Ending::Usage(format!("--token-file {}: {what}", path.display()));
    let bytes = std::fs::read(path).map_err(|e| wrong(e.to_string()))?;
    let text = bytes.trim_ascii_end();
    if text.is_empty() {
        return Err(wrong("it is empty".into()));
    }
    Token::new(text).map_err(|e| wrong(e.to_string()))
}

/// The master's address, or a usage error that says how to give it.
pub fn master_address(master: Option<&String>) -> Result<String, Ending> {
    master.cloned().ok_or_else(|| {
        Ending::Usage("--master HOST:PORT is missing (or set SNOWSKIN_MASTER)".into())
    })
}

/// Connects to the cluster that the options name.
pub fn client(args: &ClientArgs, common: &Common) -> Result<Client, Ending> {
    let mut config = Config::new(master_address(args.master.as_ref())?);
    config.tenant =
        Tenant::new(&args.tenant).map_err(|e| Ending::Usage(format!("--tenant: {e}")))?;
    config.token = token(args.token_file.as_deref())?;
    if let Some(timeout) = common.timeout.or(common.rpc_timeout) {
        config.connect_timeout = timeout;
        config.metadata_timeout = timeout;
    }
    config.data_timeout = common.timeout.or(common.transfer_timeout);
    Ok(Client::connect(&config)?)
}
