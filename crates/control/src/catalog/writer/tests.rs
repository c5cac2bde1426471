use proto::v1::object::Body;
use proto::v1::swap_request::Change;
use proto::v1::{Host, Key};

use super::*;

fn host(name: &str) -> Host {
    Host { name: name.into(), ..Host::default() }
}

fn swap(name: &str) -> Swap {
    let (kind, change) = (Kind::Host, Change::Host(host(name)));
    Swap { kind, name: name.into(), expected: 0, change, controller: None }
}

fn copy(name: &str) -> (Kind, String, Object) {
    let key = Some(Key { kind: Kind::Host.into(), name: name.into() });
    let body = Some(Body::Host(host(name)));
    (Kind::Host, name.into(), Object { key, version: 1, body, ..Object::default() })
}

fn names(news: &mut broadcast::Receiver<News>) -> Vec<String> {
    let mut names = Vec::new();
    while let Ok(objects) = news.try_recv() {
        names.extend(objects.iter().filter_map(|it| it.key.clone()).map(|key| key.name));
    }
    names
}

/// Protects from a change that was stored although the disk was full: a watcher that is told of the restored objects
/// first would skip it, since its revision is lower.
#[test]
fn a_restore_on_a_full_disk_hides_no_change_from_watchers() {
    let name = format!("pollux-writer-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let file = CatalogFile::open(&path).expect("a new file");
    let (tell, mut news) = broadcast::channel(FEED_MAX);
    let mut feed = Feed { tell: &tell, told: file.revision().expect("it is open"), full: true };
    file.commit(vec![swap("untold")]).expect("it is stored");
    let restoring = |name: &str| Some((vec![copy(name)], oneshot::channel().0));
    restore(&file, restoring("first"), &mut feed).expect("there is space");
    assert_eq!(names(&mut news), ["untold", "first"]);
    assert_eq!((feed.told, feed.full), (2, false));
    restore(&file, restoring("second"), &mut feed).expect("there is space");
    assert_eq!(names(&mut news), ["second"]);
    assert_eq!(feed.told, 3, "what is told after the next full disk begins here");
    drop(file);
    std::fs::remove_file(&path).expect("it was there");
}
