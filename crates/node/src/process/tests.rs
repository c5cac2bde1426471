use replication::catalog::CatalogAsk;
use replication::target::Stopped;
use replication::words::{Boot, VolumeUid};

use super::*;

/// Protects from a node that grows with every start of a target.
#[tokio::test]
async fn what_targets_asked_is_forgotten_when_they_stop() {
    let state = std::env::temp_dir().join(format!("pollux-reports-{}", std::process::id()));
    let memory = Arc::new(Memory::open(&state).unwrap());
    let channel = certs::channel("127.0.0.1:1", &Name::catalog(), None).unwrap();
    let books = Arc::new(Books::new(Client::new(channel), NodeId(1), memory));
    let poll = Poll::new().unwrap();
    let (shard, _orders) = Sender::new(Shard::waker(&poll).unwrap());
    let (report, reports) = mpsc::unbounded_channel();
    let volume = VolumeUid([1; 16]);
    let ask = |run: u64| {
        let (name, run) = ("db".into(), Boot(run));
        report.send(Report::Catalog { volume, name, run, ask: CatalogAsk::Get }).unwrap();
    };
    for run in 1..=100 {
        ask(run);
        ask(run);
        let reason = Stopped::Closed;
        report.send(Report::Stopped { volume, run: Boot(run), reason }).unwrap();
    }
    ask(1000);
    drop(report);
    take_reports(Arc::clone(&books), Failures::open(&state).unwrap(), shard, reports).await;
    assert_eq!(books.runs_that_ask(), 1, "one runs");
    assert!(!books.asked(Boot(1000)), "its first question was answered from memory, or not at all");
    assert!(books.asked(Boot(1)), "that run is over");
    std::fs::remove_dir_all(state).unwrap();
}
