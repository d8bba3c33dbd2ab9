//! The first frame each way: who speaks, which version, whether the two belong together.
//!
//! The side that connected sends a [`Hello`] and may send requests right behind it; the side that
//! accepted answers with a [`Welcome`] or a [`Closing`](crate::message::Closing) and closes.

use crate::error::DecodeError;
use crate::frame::Kind;
use crate::message::Message;
use crate::shared::{append, parse, unknown};
use crate::wire;
use bytes::{Bytes, BytesMut};
use snowskin_types::error::{Code, Failure, Stage};
use snowskin_types::id::ClusterId;

/// First field of every hello: `snowskin` read as a little-endian number.
pub const MAGIC: u64 = u64::from_le_bytes(*b"snowskin");
/// Version of the protocol that this build speaks.
pub const VERSION: u16 = 1;
/// Oldest version that it still understands.
pub const VERSION_MIN: u16 = 1;
/// Features that this build offers, a bit each; a feature is used when both sides offer it.
pub const FEATURES: u64 = 0;
/// The side that says it serves, or asks for, ranges of registered regions. Data servers and
/// transports add it to their greetings.
pub const FEATURE_RANGES: u64 = 1;
/// The side that says it is a transfer engine's session port, or asks for one.
pub const FEATURE_ENGINE: u64 = 2;
/// Longest token, in bytes.
pub const TOKEN_BYTES_MAX: usize = 1024;

/// What a process is on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Puts and gets.
    Client,
    /// Holds bytes.
    Node,
    /// Holds the directory.
    Master,
}

/// A secret that members of a cluster share. Not shown in print.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Token(Bytes);

impl Token {
    /// Takes the bytes.
    ///
    /// # Errors
    /// When they are longer than [`TOKEN_BYTES_MAX`].
    pub fn new(bytes: &[u8]) -> Result<Self, DecodeError> {
        if bytes.len() > TOKEN_BYTES_MAX {
            let given = bytes.len();
            return Err(DecodeError::TooMany {
                field: "token",
                given,
                max: TOKEN_BYTES_MAX,
            });
        }
        Ok(Token(Bytes::copy_from_slice(bytes)))
    }

    /// True when no token is set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Compares in a time that does not tell where the first difference is.
    fn matches(&self, other: &Token) -> bool {
        let differences = self
            .0
            .iter()
            .zip(other.0.iter())
            .fold(0, |acc, (a, b)| acc | (a ^ b));
        self.0.len() == other.0.len() && std::hint::black_box(differences) == 0
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.is_empty() {
            "Token(none)"
        } else {
            "Token(set)"
        })
    }
}

/// What one side says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Greeting {
    /// Version it speaks.
    pub version: u16,
    /// Oldest version it understands.
    pub version_min: u16,
    /// Features it offers.
    pub features: u64,
    /// Cluster it belongs to, if it knows.
    pub cluster: Option<ClusterId>,
    /// Secret of the cluster.
    pub token: Token,
    /// What it is.
    pub role: Role,
    /// Tells process lives apart, for diagnosis.
    pub process: u64,
}

impl Greeting {
    /// A greeting of this build.
    pub fn new(role: Role, process: u64) -> Self {
        Greeting {
            version: VERSION,
            version_min: VERSION_MIN,
            features: FEATURES,
            cluster: None,
            token: Token::default(),
            role,
            process,
        }
    }

    /// Names the cluster.
    #[must_use]
    pub fn with_cluster(mut self, cluster: Option<ClusterId>) -> Self {
        self.cluster = cluster;
        self
    }

    /// Adds the secret.
    #[must_use]
    pub fn with_token(mut self, token: Token) -> Self {
        self.token = token;
        self
    }

    /// Offers further features.
    #[must_use]
    pub fn with_features(mut self, features: u64) -> Self {
        self.features |= features;
        self
    }

    /// Checks the other side's greeting against the own one and returns what both can do.
    ///
    /// # Errors
    /// `INVALID_VERSION` when the versions or the clusters do not fit, `ILLEGAL_CLIENT` when the
    /// token is not the own one.
    pub fn meet(&self, other: &Greeting) -> Result<Agreed, Failure> {
        let refuse = |code, text| Err(Failure::new(code, Stage::Session, text));
        let version = self.version.min(other.version);
        if version < self.version_min || version < other.version_min {
            return refuse(
                Code::InvalidVersion,
                format!(
                    "the peer speaks protocol versions {}..={}, this side {}..={}",
                    other.version_min, other.version, self.version_min, self.version
                ),
            );
        }
        if !self.token.matches(&other.token) {
            let text = if other.token.is_empty() {
                "a token is required here: set SNOWSKIN_TOKEN_FILE or --token-file"
            } else {
                "the token is not the one of this cluster"
            };
            return refuse(Code::IllegalClient, text.to_owned());
        }
        if let (Some(own), Some(theirs)) = (self.cluster, other.cluster)
            && own != theirs
        {
            let text = format!(
                "the peer belongs to cluster {:x}, this side to {:x}",
                theirs.0, own.0
            );
            return refuse(Code::InvalidVersion, text);
        }
        Ok(Agreed {
            version,
            features: self.features & other.features,
            role: other.role,
        })
    }
}

/// What two sides have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agreed {
    /// Version that is spoken.
    pub version: u16,
    /// Features that may be used.
    pub features: u64,
    /// What the other side is.
    pub role: Role,
}

/// The first frame of the side that connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello(pub Greeting);

/// The first frame of the side that accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Welcome(pub Greeting);

fn encode(greeting: &Greeting, out: &mut BytesMut) {
    let message = wire::Hello {
        magic: MAGIC,
        version: greeting.version.into(),
        version_min: greeting.version_min.into(),
        features: greeting.features,
        cluster: greeting.cluster.map(|cluster| cluster.0),
        token: greeting.token.0.clone(),
        role: match greeting.role {
            Role::Client => 1,
            Role::Node => 2,
            Role::Master => 3,
        },
        process: greeting.process,
    };
    append(&message, out);
}

fn decode(body: Bytes) -> Result<Greeting, DecodeError> {
    let hello: wire::Hello = parse(body)?;
    if hello.magic != MAGIC {
        return unknown("magic", hello.magic);
    }
    let version = |field, version: u32| {
        u16::try_from(version).map_err(|_| DecodeError::Unknown {
            field,
            value: u64::from(version),
        })
    };
    Ok(Greeting {
        version: version("version", hello.version)?,
        version_min: version("oldest version", hello.version_min)?,
        features: hello.features,
        cluster: hello.cluster.map(ClusterId),
        token: Token::new(&hello.token)?,
        role: match hello.role {
            1 => Role::Client,
            2 => Role::Node,
            3 => Role::Master,
            other => return unknown("role", other),
        },
        process: hello.process,
    })
}

impl Message for Hello {
    const KIND: Kind = Kind::Hello;

    fn encode_body(&self, out: &mut BytesMut) {
        encode(&self.0, out);
    }

    fn decode_body(body: Bytes) -> Result<Self, DecodeError> {
        decode(body).map(Hello)
    }
}

impl Message for Welcome {
    const KIND: Kind = Kind::Welcome;

    fn encode_body(&self, out: &mut BytesMut) {
        encode(&self.0, out);
    }

    fn decode_body(body: Bytes) -> Result<Self, DecodeError> {
        decode(body).map(Welcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greetings_that_do_not_fit_are_refused_with_their_own_codes() {
        let own = Greeting::new(Role::Master, 1).with_cluster(Some(ClusterId(7)));
        let code = |other: &Greeting| own.meet(other).map_err(|failure| failure.code);
        let mut other = Greeting::new(Role::Client, 2);
        assert_eq!(code(&other).map(|agreed| agreed.role), Ok(Role::Client));
        other.cluster = Some(ClusterId(8));
        assert_eq!(code(&other), Err(Code::InvalidVersion));
        other.cluster = Some(ClusterId(7));
        other.version_min = VERSION + 1;
        other.version = VERSION + 1;
        assert_eq!(code(&other), Err(Code::InvalidVersion));
        other.version_min = VERSION;
        assert_eq!(code(&other).map(|agreed| agreed.version), Ok(VERSION));
        other.token = Token::new(b"x").unwrap();
        assert_eq!(code(&other), Err(Code::IllegalClient));
    }

    #[test]
    fn a_missing_token_is_refused_and_never_printed() {
        let own = Greeting::new(Role::Node, 1).with_token(Token::new(b"secret").unwrap());
        let other = Greeting::new(Role::Client, 2);
        assert_eq!(
            own.meet(&other).map_err(|f| f.code),
            Err(Code::IllegalClient)
        );
        assert!(!format!("{own:?}").contains("secret"));
    }
}
