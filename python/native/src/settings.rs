//! What a store or a pool is opened with: a dictionary of names that Python has normalised.

use crate::args::number;
use crate::engine::InnerTransferEngine;
use crate::errors::invalid;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};
use snowskin_client::Token;
use snowskin_types::{Failure, Stage, Tenant};
use std::time::Duration;

/// Ports that are tried for a host without one.
pub(crate) const PORTS: (u16, u16) = (12_300, 14_300);
const PORT_TRIES: u64 = 20;

/// See the module. Every setting has a default.
pub(crate) struct Settings {
    /// `host:port`; empty: the whole pool is in this process.
    pub(crate) master: String,
    pub(crate) hostname: String,
    pub(crate) segment_size: u64,
    pub(crate) local_buffer_size: u64,
    pub(crate) tenant: Tenant,
    /// A transfer engine whose registered memory the store uses, and keeps registered.
    pub(crate) engine: Option<Py<InnerTransferEngine>>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) transfer_timeout: Option<Duration>,
    pub(crate) connect_timeout: Option<Duration>,
    pub(crate) strict_buffers: bool,
    pub(crate) thin: bool,
    pub(crate) token: Token,
    pub(crate) bind: Option<String>,
    pub(crate) ports: (u16, u16),
    pub(crate) port_tries: u64,
    pub(crate) log: String,
}

impl Settings {
    /// Reads the dictionary; a name that is not known is a `TypeError`, a value that cannot work
    /// a failure.
    pub(crate) fn read(dict: &Bound<'_, PyDict>) -> PyResult<Result<Self, Failure>> {
        let mut settings = Settings {
            master: String::new(),
            hostname: "localhost".to_owned(),
            segment_size: 0,
            local_buffer_size: u64::MAX,
            tenant: Tenant::default(),
            engine: None,
            timeout: None,
            transfer_timeout: None,
            connect_timeout: None,
            strict_buffers: false,
            thin: false,
            token: Token::default(),
            bind: None,
            ports: PORTS,
            port_tries: PORT_TRIES,
            log: "warn".to_owned(),
        };
        let mut good = Ok(());
        for (name, value) in dict {
            let name = name.cast::<PyString>()?.to_str()?.to_owned();
            // What is none has its default.
            if value.is_none() {
                continue;
            }
            let set = settings.set(&name, &value)?;
            good = good.and(set);
        }
        Ok(good.map(|()| settings))
    }

    fn set(&mut self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<Result<(), Failure>> {
        match name {
            "master" => self.master = value.extract()?,
            "hostname" => self.hostname = value.extract()?,
            "segment_size" => self.segment_size = number(value)?,
            "local_buffer_size" => self.local_buffer_size = number(value)?,
            "tenant" => {
                let name: String = value.extract()?;
                match Tenant::new(&name) {
                    Ok(tenant) => self.tenant = tenant,
                    Err(error) => return Ok(Err(invalid(Stage::Session, error.to_string()))),
                }
            }
            "engine" => {
                let engine = value.cast::<InnerTransferEngine>()?;
                self.engine = Some(engine.clone().unbind());
            }
            "timeout_ms" => self.timeout = Some(Duration::from_millis(number(value)?)),
            "transfer_timeout_ms" => {
                self.transfer_timeout = Some(Duration::from_millis(number(value)?));
            }
            "connect_timeout_ms" => {
                self.connect_timeout = Some(Duration::from_millis(number(value)?));
            }
            "strict_buffers" => self.strict_buffers = value.is_truthy()?,
            "thin" => self.thin = value.is_truthy()?,
            "token" => match Token::new(value.cast::<PyBytes>()?.as_bytes()) {
                Ok(token) => self.token = token,
                Err(error) => return Ok(Err(invalid(Stage::Session, error.to_string()))),
            },
            "bind" => self.bind = Some(value.extract()?),
            "min_port" => self.ports.0 = value.extract()?,
            "max_port" => self.ports.1 = value.extract()?,
            "port_tries" => self.port_tries = number(value)?,
            "log" => self.log = value.extract()?,
            // A wish for a fabric is not an order, and there is no disk tier in this process yet.
            "protocol" | "ssd" => {}
            other => {
                return Err(PyTypeError::new_err(format!("unknown setting {other:?}")));
            }
        }
        Ok(Ok(()))
    }
}
