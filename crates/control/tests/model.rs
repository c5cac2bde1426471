//! Protects from swaps that are lost, doubled, or judged by something else than what was there.
//!
//! Several clients swap at random. Afterwards their answers, in the order of revisions, are told to a
//! model, which must agree with each; and every conflict must have shown an object that there was.
mod site;

use std::collections::BTreeMap;

use proto::catalog_client::{CallError, Client, Swapped};
use proto::v1::swap_request::Change;
use proto::v1::{Kind, Object};
use site::{Rng, Scratch, block_on, blocks, client, deletion, key, name, plain, start, volume};
use tonic::Code;

const CLIENTS: u64 = 8;
const SWAPS: u64 = 150;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

struct Asked {
    name: &'static str,
    expected: u64,
    /// `None`: it is to be deleted.
    blocks: Option<u64>,
    answer: Swapped,
}

async fn swap_at_random(client: Client, seed: u64) -> Vec<Asked> {
    let mut rng = Rng(seed);
    let mut known: BTreeMap<&str, u64> = BTreeMap::new();
    let mut asked = Vec::new();
    for _ in 0..SWAPS {
        let name = NAMES[usize::try_from(rng.below(4)).expect("a small number")];
        let expected = match rng.below(10) {
            0 => rng.below(20),
            _ => known.get(name).copied().unwrap_or(0),
        };
        let blocks = (expected == 0 || !rng.one_in(4)).then(|| 1 + rng.below(1 << 20));
        let change = blocks.map_or_else(deletion, |blocks| volume(name, blocks));
        let answer = client.swap(&key(name), expected, change).await.expect("a catalog");
        let there = match &answer {
            Swapped::Done(object) => object.body.as_ref().map_or(0, |_| object.version),
            Swapped::Conflict(present) => present.as_ref().map_or(0, |object| object.version),
        };
        known.insert(name, there);
        asked.push(Asked { name, expected, blocks, answer });
    }
    asked
}

/// What there was: for each name, every version with its object.
#[derive(Default)]
struct Model {
    history: BTreeMap<&'static str, Vec<Object>>,
}

impl Model {
    fn present(&self, name: &str) -> Option<&Object> {
        let last = self.history.get(name).and_then(|history| history.last());
        last.filter(|object| object.body.is_some())
    }

    fn follow(&mut self, asked: &Asked, object: &Object) {
        let version = self.present(asked.name).map_or(0, |object| object.version);
        assert_eq!(version, asked.expected, "{} was swapped against another", asked.name);
        let history = self.history.entry(asked.name).or_default();
        let next = history.last().map_or(1, |object| object.version + 1);
        assert_eq!(object.version, next, "versions of {} have no gap", asked.name);
        assert_eq!(blocks(object), asked.blocks, "what was asked for is what is there");
        history.push(object.clone());
    }

    fn check_conflict(&self, asked: &Asked, present: &Option<Object>) {
        match present {
            Some(object) => {
                assert_ne!(object.version, asked.expected, "that was no conflict");
                assert!(self.history[asked.name].contains(object), "there never was {object:?}");
            }
            None => assert_ne!(asked.expected, 0, "nothing was expected, and nothing was there"),
        }
    }
}

#[test]
fn swaps_of_many_clients_have_one_order() {
    let scratch = Scratch::new();
    let catalog = start(plain(scratch.path("catalog"), 0)).unwrap();
    let (asked, listed) = block_on(async {
        let clients =
            (0..CLIENTS).map(|seed| tokio::spawn(swap_at_random(client(catalog.address), seed)));
        let mut asked = Vec::new();
        for client in clients.collect::<Vec<_>>() {
            asked.extend(client.await.expect("no panic"));
        }
        (asked, client(catalog.address).list(Kind::Volume).await.unwrap())
    });
    catalog.stop();

    let mut done: Vec<(&Asked, &Object)> = Vec::new();
    for asked in &asked {
        if let Swapped::Done(object) = &asked.answer {
            done.push((asked, object));
        }
    }
    done.sort_by_key(|(_, object)| object.revision);
    let mut model = Model::default();
    for (number, (asked, object)) in done.iter().enumerate() {
        assert_eq!(object.revision, u64::try_from(number).unwrap() + 1, "revisions have no gap");
        model.follow(asked, object);
    }
    let mut conflicts = 0;
    for asked in &asked {
        if let Swapped::Conflict(present) = &asked.answer {
            model.check_conflict(asked, present);
            conflicts += 1;
        }
    }
    assert!(conflicts > 50 && done.len() > 200, "{conflicts} conflicts, {} done", done.len());
    let left: Vec<Object> = NAMES.iter().filter_map(|name| model.present(name)).cloned().collect();
    assert_eq!(listed, left);
}

#[test]
fn what_makes_no_sense_is_refused_with_the_field() {
    let scratch = Scratch::new();
    let catalog = start(plain(scratch.path("catalog"), 0)).unwrap();
    let refusal = |error: CallError| match error {
        CallError::Refused { code: Code::InvalidArgument, reason } => reason,
        other => panic!("{other}"),
    };
    block_on(async {
        let client = client(catalog.address);
        let bad_name = client.swap(&key("Big"), 0, volume("Big", 1)).await;
        assert!(refusal(bad_name.unwrap_err()).starts_with("key.name: "));
        let Change::Volume(mut odd) = volume("a", 1) else { panic!("a volume") };
        odd.size = 4097;
        let odd = client.swap(&key("a"), 0, Change::Volume(odd)).await;
        assert!(refusal(odd.unwrap_err()).starts_with("volume.size: "));
        let other_name = client.swap(&key("a"), 0, volume("b", 1)).await;
        assert!(refusal(other_name.unwrap_err()).starts_with("volume.name: "));

        client.swap(&key("a"), 0, volume("a", 1)).await.unwrap();
        let Change::Volume(mut other) = volume("a", 1) else { panic!("a volume") };
        other.uid = vec![1; 16];
        let other = client.swap(&key("a"), 1, Change::Volume(other)).await;
        assert!(refusal(other.unwrap_err()).starts_with("volume.uid: "));
        assert_eq!(client.get(&key("a")).await.unwrap().unwrap().version, 1);
        assert_eq!(client.get(&key("b")).await.unwrap(), None);
    });
}

#[test]
fn a_long_list_comes_whole() {
    let scratch = Scratch::new();
    let catalog = start(plain(scratch.path("catalog"), 0)).unwrap();
    let names: Vec<String> = (0..1200).map(|number| format!("v{number:04}")).collect();
    let listed = block_on(async {
        let client = client(catalog.address);
        let swaps = names.iter().map(|name| {
            let (client, name) = (client.clone(), name.clone());
            tokio::spawn(async move { client.swap(&key(&name), 0, volume(&name, 1)).await })
        });
        for swap in swaps.collect::<Vec<_>>() {
            swap.await.unwrap().expect("it is stored");
        }
        client.list(Kind::Volume).await.unwrap()
    });
    assert_eq!(listed.iter().map(name).collect::<Vec<_>>(), names);
}

#[test]
fn a_catalog_that_stops_has_stored_what_it_answered() {
    let scratch = Scratch::new();
    let path = scratch.path("catalog");
    let catalog = start(plain(path.clone(), 0)).unwrap();
    let address = catalog.address;
    let done = block_on(async {
        let swaps = (0..200).map(|number| {
            let name = format!("v{number}");
            let client = client(address);
            tokio::spawn(async move { client.swap(&key(&name), 0, volume(&name, 1)).await })
        });
        let swaps: Vec<_> = swaps.collect();
        let stop = tokio::task::spawn_blocking(move || catalog.stop());
        let mut done = Vec::new();
        for swap in swaps {
            match swap.await.unwrap() {
                Ok(Swapped::Done(object)) => done.push(name(&object)),
                Ok(other) => panic!("{other:?}"),
                Err(error) => assert!(error.may_pass(), "{error}"),
            }
        }
        stop.await.unwrap();
        done
    });
    let catalog = start(plain(path, 0)).unwrap();
    let listed = block_on(async { client(catalog.address).list(Kind::Volume).await.unwrap() });
    let listed: Vec<String> = listed.iter().map(name).collect();
    assert!(done.iter().all(|name| listed.contains(name)));
}
