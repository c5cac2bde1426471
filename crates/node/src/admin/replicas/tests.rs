use std::collections::BTreeMap;

use replication::catalog::VolumeObject;
use replication::words::{CatalogVersion, Span};

use super::*;
use crate::records::{Access, VolumeRecord};

const HERE: NodeId = NodeId(8);

fn listed() -> Known {
    Known {
        record: VolumeRecord {
            uid: VolumeUid([3; 16]),
            name: "db".into(),
            size: ByteLen(1 << 20),
            block_size: ByteLen(4096),
            object: VolumeObject::default(),
            places: BTreeMap::from([(ReplicaId(2), HERE), (ReplicaId(1), NodeId(7))]),
            hold_deadline: Span::secs(1),
            workers: None,
            access: Access::default(),
        },
        pools: [1, 2].map(|replica| (ReplicaId(replica), "main".into())).into(),
        deleting: false,
        object: Box::default(),
    }
}

fn asked(uid: u8, pool: &str) -> ReplicaSpec {
    let request = v1::CreateReplicaRequest {
        volume: Some(v1::VolumeRef { name: "db".into(), uid: vec![uid; 16] }),
        pool: pool.into(),
        block_size: 4096,
        compression: "off".into(),
        ..v1::CreateReplicaRequest::default()
    };
    spec(request).expect("it is well formed")
}

/// Protects from content that no object lists: nobody would ever delete it.
#[test]
fn only_what_the_catalog_lists_is_made() {
    let known = listed();
    let why = |known: Option<&Known>, spec: ReplicaSpec, replica: u64| {
        let refused = may_make(known, &spec, ReplicaId(replica), HERE).err()?;
        assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
        Some(refused.message().to_owned())
    };
    let says = |why: Option<String>, what: &str| {
        assert!(why.as_ref().is_some_and(|why| why.contains(what)), "{why:?}");
    };
    assert_eq!(why(Some(&known), asked(3, "main"), 2), None);
    says(why(None, asked(3, "main"), 2), "no volume `db`");
    says(why(Some(&known), asked(4, "main"), 2), "no volume `db` with this uid");
    says(why(Some(&known), asked(3, "fast"), 2), "in the pool `fast`");
    says(why(Some(&known), asked(3, "main"), 1), "no replica 1");
    says(why(Some(&known), asked(3, "main"), 3), "no replica 3");
    let gone = Known { deleting: true, ..listed() };
    says(why(Some(&gone), asked(3, "main"), 2), "being deleted");
}

/// Protects from a catalog that was restored, or lost: that it does not know a volume any more is no order to destroy it.
#[test]
fn absence_does_not_permit_to_wipe() {
    let refused = may_wipe(Listing::Unknown, "db", u64::MAX).unwrap_err();
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
    assert!(refused.message().contains("is kept"), "{refused:?}");
    let mut known = listed();
    known.record.object.version = CatalogVersion(5);
    known.record.object.membership.version = 3;
    let refused = may_wipe(Listing::Listed(Box::new(known.clone())), "db", 4).unwrap_err();
    assert!(refused.message().contains("look again"), "{refused:?}");
    let membership = may_wipe(Listing::Listed(Box::new(known)), "db", 5).unwrap();
    assert_eq!(membership.version, 3, "the shard compares it with the replica");
    assert_eq!(may_wipe(Listing::Deleted, "db", 0).unwrap().version, u64::MAX, "nobody votes");
}
