//! Names of engines: a host, and the port of its sessions.

use crate::error::EngineError;
use std::net::Ipv6Addr;

/// The host in `host`, `host:port`, `address6`, `[address6]` or `[address6]:port`, and the port if there is
/// one. A device behind the port (`:npu_3`) is ignored.
pub(crate) fn split(text: &str) -> Option<(&str, Option<u16>)> {
    let text = match text.rsplit_once(":npu_") {
        Some((front, device)) if is_number(device) => front,
        _ => text,
    };
    if let Some(rest) = text.strip_prefix('[') {
        let (host, behind) = rest.split_once(']')?;
        host.parse::<Ipv6Addr>().ok()?;
        return match behind.strip_prefix(':') {
            Some(port) => Some((host, Some(port.parse().ok()?))),
            None if behind.is_empty() => Some((host, None)),
            None => None,
        };
    }
    if text.parse::<Ipv6Addr>().is_ok() {
        return Some((text, None));
    }
    match text.split_once(':') {
        None if !text.is_empty() => Some((text, None)),
        Some((host, port)) if !host.is_empty() => Some((host, Some(port.parse().ok()?))),
        _ => None,
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// `host:port`, with brackets where they are needed.
pub(crate) fn join(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// The name of a peer as its address, with `port` where it has none.
pub(crate) fn peer(text: &str, port: u16) -> Result<String, EngineError> {
    match split(text) {
        Some((host, given)) => Ok(join(host, given.unwrap_or(port))),
        None => Err(EngineError::Unresolved {
            peer: text.to_owned(),
            reason: "the name is not HOST, HOST:PORT or [ADDRESS]:PORT".to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports_are_told_apart() {
        for (text, expected) in [
            ("h", Some(("h", None))),
            ("h:15000", Some(("h", Some(15_000)))),
            ("10.0.0.1:1:npu_3", Some(("10.0.0.1", Some(1)))),
            ("::1", Some(("::1", None))),
            ("[::1]", Some(("::1", None))),
            ("[fe80::2]:70", Some(("fe80::2", Some(70)))),
            ("", None),
            (":5", None),
            ("h:", None),
            ("h:x", None),
            ("h:70000", None),
            ("[h]:5", None),
            ("[::1]5", None),
            ("a:1:2", None),
        ] {
            assert_eq!(split(text), expected, "{text}");
        }
        assert_eq!(peer("::1", 5).as_deref(), Ok("[::1]:5"));
        assert_eq!(peer("[::1]:6", 5).as_deref(), Ok("[::1]:6"));
        assert_eq!(peer("h", 5).as_deref(), Ok("h:5"));
        assert_eq!(peer("", 5).unwrap_err().number(), -101);
    }
}
