//! `snowskin stat`: the cluster, or one object.

use crate::args::{Common, StatArgs};
use crate::commands::connect::client;
use crate::exit::Ending;
use serde_json::{Value, json};
use snowskin_client::CallOptions;
use snowskin_types::call::{ClusterStat, NodeState, ObjectStat};
use snowskin_types::error::{Code, Failure, Stage};
use snowskin_types::object::Tier;
use snowskin_types::units::show_size;

fn state_word(state: NodeState) -> &'static str {
    match state {
        NodeState::Alive => "alive",
        NodeState::Suspect => "suspect",
        NodeState::Gone => "gone",
    }
}

fn tier_word(tier: Tier) -> &'static str {
    match tier {
        Tier::Dram => "dram",
        Tier::Ssd => "ssd",
    }
}

/// Runs the command.
pub fn run(args: &StatArgs, common: &Common) -> Result<(), Ending> {
    let client = client(&args.client, common)?;
    let Some(key) = &args.key else {
        let stat = client.stat(&CallOptions::default())?;
        if common.json {
            say!("{}", cluster_json(&stat));
        } else {
            print_cluster(&stat);
        }
        return Ok(());
    };
    let Some(stat) = client.stat_object(key, &CallOptions::default())? else {
        let mut failure = Failure::new(Code::ObjectNotFound, Stage::Locate, "no such object");
        failure.key = snowskin_types::Key::new(key.as_bytes()).ok();
        return Err(failure.into());
    };
    let object = object_json(key, &client.tenant().to_string(), &stat);
    if common.json {
        say!("{object}");
    } else {
        print_object(key, &stat);
    }
    Ok(())
}

fn cluster_json(stat: &ClusterStat) -> Value {
    let nodes: Vec<Value> = stat
        .nodes
        .iter()
        .map(|n| {
            json!({
                "id": n.place.node.to_string(),
                "epoch": n.place.epoch.to_string(),
                "state": state_word(n.state),
                "host": n.host,
                "data": n.place.address.as_ref(),
                "dram_used": n.dram_used,
                "dram_capacity": n.dram_capacity,
                "ssd_used": 0,
                "ssd_capacity": 0,
                "ssd_state": "off",
                "io": Value::Null,
                "replicas": n.replicas,
                "policy": n.policy,
            })
        })
        .collect();
    json!({
        "schema": "snowskin.stat/1",
        "term": stat.term.0,
        "objects": stat.objects,
        "bytes": stat.bytes,
        "leased": stat.leased,
        "unfinished": stat.unfinished,
        "ready": stat.ready,
        "nodes": nodes,
    })
}

fn print_cluster(stat: &ClusterStat) {
    say!(
        "term {}, {} objects, {}, {} under lease{}",
        stat.term.0,
        stat.objects,
        show_size(stat.bytes),
        show_size(stat.leased),
        if stat.ready {
            ""
        } else {
            ", inventories not complete"
        }
    );
    for n in &stat.nodes {
        say!(
            "node {}  {:7}  {:21}  {} of {}  {} replicas  {}",
            n.place.node,
            state_word(n.state),
            n.place.address,
            show_size(n.dram_used),
            show_size(n.dram_capacity),
            n.replicas,
            n.policy
        );
    }
}

fn object_json(key: &str, tenant: &str, stat: &ObjectStat) -> Value {
    let replicas: Vec<Value> = stat
        .replicas
        .iter()
        .map(|r| {
            json!({
                "node": r.place.node.to_string(),
                "epoch": r.place.epoch.to_string(),
                "data": r.place.address.as_ref(),
                "tier": tier_word(r.tier),
                "state": r.state,
                "version": r.version.to_string(),
            })
        })
        .collect();
    let pin = match (stat.attributes.hard_pin, stat.attributes.soft_pin) {
        (true, _) => "hard",
        (false, Some(_)) => "soft",
        (false, None) => "none",
    };
    json!({
        "schema": "snowskin.stat/1",
        "key": key,
        "tenant": tenant,
        "version": stat.version.to_string(),
        "size": stat.shape.size,
        "checksum": format!("{:016x}", stat.shape.checksum),
        "lease_ms_left": stat.lease_left.0,
        "exists_cap_ms_left": stat.exists_cap_left.0,
        "pin": pin,
        "group": stat.attributes.group.as_deref(),
        "replicas": replicas,
    })
}

fn print_object(key: &str, stat: &ObjectStat) {
    say!(
        "{key}: version {}, {}, checksum {:016x}, lease {} ms",
        stat.version,
        show_size(stat.shape.size),
        stat.shape.checksum,
        stat.lease_left.0
    );
    for r in &stat.replicas {
        say!(
            "  {} {} at node {} ({}), version {}",
            r.state,
            tier_word(r.tier),
            r.place.node,
            r.place.address,
            r.version
        );
    }
}
