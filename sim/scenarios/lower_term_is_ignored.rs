//! H9, as far as one master goes: the answer of a former leadership reaches a node that has
//! registered with the next one. A granted retract of the old term must not free what the new
//! directory names.

use crate::packet::Packet;
use crate::script::{Played, Script, batch_with, words_to};
use crate::setup::Setup;
use snowskin_types::link::NodeItem;

pub(super) fn setup() -> Setup {
    Setup {
        keys: 12,
        ..Setup::calm()
    }
}

pub(super) fn play(s: &mut Script) -> Played {
    let v1 = s.put(0, 0)?;
    let asked = s.hold(batch_with(0, |i| matches!(i, NodeItem::Retract { .. })));
    for key in 1..8 {
        if s.world.net.held.is_empty() {
            s.put(key, 0)?;
        }
    }
    s.caught(asked, "the node offers an eviction")?;
    let words = s.hold(words_to(0));
    s.release(asked);
    s.caught(words, "the retract is granted")?;
    let late = s.take(words);
    let again = s.hold(batch_with(0, |i| matches!(i, NodeItem::Retract { .. })));
    s.restart_master()?;
    s.registered()?;
    s.run(200)?;
    let held = s.holds(0, v1);
    let Some(now) = s.world.nodes[0].link else {
        return Err("the node has no link".to_owned());
    };
    for old in late {
        if let Packet::ToNode { message, .. } = old.packet {
            let packet = Packet::ToNode { link: now, message };
            s.world.deliver(old.from, old.to, packet);
        }
    }
    s.run(500)?;
    if !held || !s.holds(0, v1) {
        return Err("an answer of the former term freed what the new directory names".to_owned());
    }
    s.reads(1, 0, v1)?;
    s.release(again);
    s.run(500)
}
