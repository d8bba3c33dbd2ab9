//! Reads replicas at exactly the nodes that are named for them, for audits: nothing is chosen, retried,
//! reported or remembered, and the bytes are thrown away once their checksums were verified.

use crate::batch::key_of;
use crate::client::Client;
use crate::options::CallOptions;
use snowskin_memory::slices::TargetSlices;
use snowskin_transfer::transport::{Completion, Movement, Operation, OperationId, ReadFrom};
use snowskin_types::access::ReadRequest;
use snowskin_types::limits::PIECE_BYTES;
use snowskin_types::object::{Place, Shape};
use snowskin_types::{Code, Failure, Key, Now, ObjectName, Stage, Version};
use std::collections::HashMap;

/// Room for the bytes that are under way: whole pieces, so that each range of a large object is
/// verified against the sums that its owner keeps.
const ROOM_BYTES: u64 = 128 * PIECE_BYTES;
/// Reads under way together.
const READS_MAX: usize = 512;

/// A replica that is to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedReplica {
    /// Of which object.
    pub key: Key,
    /// Which version.
    pub version: Version,
    /// Size and checksum that the directory names.
    pub shape: Shape,
    /// Who is said to hold it, in which process life.
    pub place: Place,
}

/// What was found of a replica.
#[derive(Debug, Clone, PartialEq)]
pub enum Condition {
    /// All its bytes came and have their checksums.
    Sound,
    /// Its owner says that it does not hold it.
    Gone,
    /// Its bytes, its size or its checksum are not what the directory names.
    Bad,
    /// That could not be found out.
    Unknown(Failure),
}

/// A part of a replica that is read in one operation.
#[derive(Debug, Clone, Copy)]
struct Range {
    item: usize,
    offset: u64,
    len: u64,
}

impl Client {
    /// Reads every byte of these replicas, each from the node that it is named for, and verifies
    /// them. One condition for each, in their order. Needs memory for 32 MiB, whatever their size.
    pub fn inspect_replicas(
        &self,
        replicas: &[NamedReplica],
        options: &CallOptions,
    ) -> Vec<Condition> {
        let mut found = vec![Condition::Sound; replicas.len()];
        if let Err(closed) = self.context.check_open() {
            return vec![Condition::Unknown(closed); replicas.len()];
        }
        let mut room = Vec::new();
        let mut round: Vec<Range> = Vec::new();
        let mut bytes = 0;
        for (item, replica) in replicas.iter().enumerate() {
            let size = replica.shape.size;
            let mut offset = 0;
            while offset < size {
                let len = ROOM_BYTES.min(size - offset);
                if bytes + len > ROOM_BYTES || round.len() >= READS_MAX {
                    self.inspect_round(replicas, &round, &mut room, &mut found, options);
                    round.clear();
                    bytes = 0;
                }
                round.push(Range { item, offset, len });
                bytes += len;
                offset += len;
            }
        }
        self.inspect_round(replicas, &round, &mut room, &mut found, options);
        found
    }

    fn inspect_round(
        &self,
        replicas: &[NamedReplica],
        ranges: &[Range],
        room: &mut Vec<u8>,
        found: &mut [Condition],
        options: &CallOptions,
    ) {
        let bytes: u64 = ranges.iter().map(|r| r.len).sum();
        let Some(size) = usize::try_from(bytes).ok().filter(|size| *size > 0) else {
            return;
        };
        if room.len() < size {
            room.resize(size, 0);
        }
        let deadline = self.context.later(options.timeout, bytes).at;
        let tenant = options.tenant.as_ref().unwrap_or(&self.context.tenant);
        let mut batch = self.context.transport.batch();
        let mut items: HashMap<OperationId, usize> = HashMap::with_capacity(ranges.len());
        let mut rest = room.as_mut_slice();
        let mut unread = Vec::new();
        for range in ranges {
            let Some(replica) = replicas.get(range.item) else {
                continue;
            };
            // What was found wrong needs no further look.
            if found.get(range.item) != Some(&Condition::Sound) {
                continue;
            }
            let len = usize::try_from(range.len).unwrap_or(usize::MAX);
            let Some((target, after)) = std::mem::take(&mut rest).split_at_mut_checked(len) else {
                unread.push(range.item);
                continue;
            };
            rest = after;
            let request = ReadRequest {
                epoch: replica.place.epoch,
                name: ObjectName::new(tenant.clone(), replica.key.clone()),
                version: replica.version,
                offset: range.offset,
                len: range.len,
            };
            let movement = Movement::Read {
                from: ReadFrom::Object(request),
                target: TargetSlices::of(target),
            };
            let operation = Operation::new(replica.place.clone(), movement, deadline);
            items.insert(batch.submit(operation), range.item);
        }
        let mut completions = Vec::new();
        while batch.under_way() > 0 {
            // Every operation ends at the deadline by itself.
            batch.wait(Now::NEVER, &mut completions);
            for completion in completions.drain(..) {
                let Some(item) = items.remove(&completion.id) else {
                    continue;
                };
                let (Some(replica), Some(slot)) = (replicas.get(item), found.get_mut(item)) else {
                    continue;
                };
                let condition = condition_of(replica, completion);
                if *slot == Condition::Sound {
                    *slot = condition;
                }
            }
        }
        // Never happens; but what was not read must not look sound.
        for item in unread.into_iter().chain(items.into_values()) {
            if let Some(slot) = found.get_mut(item) {
                let text = "a read ended without a result";
                *slot = Condition::Unknown(Failure::new(Code::Internal, Stage::Read, text));
            }
        }
    }
}

fn condition_of(replica: &NamedReplica, completion: Completion<'_>) -> Condition {
    match completion.result {
        Ok(done) if done.shape.is_some_and(|shape| shape != replica.shape) => Condition::Bad,
        Ok(_) => Condition::Sound,
        Err(failure) => match failure.code {
            Code::ReplicaGone => Condition::Gone,
            // Its owner knows another size than the directory.
            Code::ChecksumMismatch | Code::InvalidRead => Condition::Bad,
            _ => Condition::Unknown(failure),
        },
    }
}

impl NamedReplica {
    /// Names a replica of a key.
    ///
    /// # Errors
    /// When the key is not allowed.
    pub fn new(
        key: impl AsRef<[u8]>,
        version: Version,
        shape: Shape,
        place: Place,
    ) -> Result<Self, Failure> {
        Ok(NamedReplica {
            key: key_of(key.as_ref())?,
            version,
            shape,
            place,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PutOptions;
    use crate::fake::{FakeMaster, ServedNode, Whim, client_of, config};
    use std::sync::Arc;

    struct World {
        master: Arc<FakeMaster>,
        node: ServedNode,
        client: Client,
    }

    fn world() -> World {
        let master = Arc::new(FakeMaster::default());
        let node = ServedNode::start(1, &master);
        let client = client_of(&config(), Arc::clone(&master) as _);
        World {
            master,
            node,
            client,
        }
    }

    impl World {
        fn put(&self, key: &str, len: usize) -> NamedReplica {
            let bytes: Vec<u8> = (0..len).map(|i| (i * 31 + i / 251) as u8).collect();
            let stored = self
                .client
                .put(key, &bytes, &PutOptions::default())
                .unwrap();
            let crate::Stored::Written { version, .. } = stored else {
                panic!("{stored:?}");
            };
            let shape = Shape {
                size: len as u64,
                checksum: snowskin_types::checksum::crc64(&bytes),
            };
            NamedReplica::new(key, version, shape, self.node.place()).unwrap()
        }

        fn look(&self, replicas: &[NamedReplica]) -> Vec<Condition> {
            self.client
                .inspect_replicas(replicas, &CallOptions::default())
        }
    }

    #[test]
    fn sound_replicas_of_any_size_are_found_sound_and_none_is_reported() {
        let world = world();
        let room = ROOM_BYTES as usize;
        let replicas: Vec<_> = [1, 4097, 300_000, room + 5, 7]
            .into_iter()
            .map(|len| world.put(&format!("k{len}"), len))
            .collect();
        assert_eq!(world.look(&replicas), vec![Condition::Sound; 5]);
        assert_eq!(world.look(&[]), []);
        assert_eq!(world.master.reports(), []);
    }

    #[test]
    fn what_is_not_held_is_gone_and_costs_the_others_nothing() {
        let world = world();
        let (a, b) = (world.put("a", 10), world.put("b", 20));
        let mut other_version = a.clone();
        other_version.version = Version::from_raw(999);
        let mut other_key = b.clone();
        other_key.key = Key::new(b"c").unwrap();
        let found = world.look(&[a, other_version, b.clone(), other_key]);
        let gone = Condition::Gone;
        assert_eq!(found[0], Condition::Sound);
        assert_eq!(
            (&found[1], &found[2], &found[3]),
            (&gone, &Condition::Sound, &gone)
        );
        world.node.drop_all();
        assert_eq!(world.look(&[b]), [gone]);
    }

    #[test]
    fn damaged_bytes_and_other_shapes_are_bad() {
        let world = world();
        let large = world.put("large", ROOM_BYTES as usize + 5);
        let small = world.put("small", 100);
        let mut longer = small.clone();
        longer.shape.size += 1;
        let mut other = small.clone();
        other.shape.checksum ^= 1;
        assert_eq!(
            world.look(&[longer, other]),
            [Condition::Bad, Condition::Bad]
        );
        world.node.damage();
        assert_eq!(
            world.look(&[large, small]),
            [Condition::Bad, Condition::Bad]
        );
    }

    #[test]
    fn what_cannot_be_asked_is_unknown() {
        let mut world = world();
        let replica = world.put("a", 10);
        world.node.on_read(Whim::Fail(Code::UnavailableInStatus));
        let found = world.look(std::slice::from_ref(&replica));
        assert!(
            matches!(&found[..], [Condition::Unknown(f)] if f.code == Code::UnavailableInStatus)
        );
        world.node.kill();
        let found = world.look(&[replica]);
        assert!(matches!(&found[..], [Condition::Unknown(_)]), "{found:?}");
    }
}
