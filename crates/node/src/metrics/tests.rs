//! Figures are told as they are, and however many ask, the data plane is asked once in a second.
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

fn pool() -> PoolStatus {
    PoolStatus {
        name: "main".into(),
        path: "pool".into(),
        uuid: [1; 16],
        format_version: 1,
        sector: block::SectorSize::B4096,
        size: block::ByteLen(100),
        free: block::ByteLen(70),
        reserve: block::ByteLen(7),
        pending: block::ByteLen(0),
        reclaimable: block::ByteLen(3),
        mode: block::IoMode::Direct,
        backend: "io_uring",
        failed: Some("it is gone".into()),
        counters: engine::Counters::default(),
        replicas: 2,
    }
}

#[test]
fn a_pool_is_shown_with_its_figures() {
    let (replicas, targets) = (Vec::new(), Vec::new());
    let status = ShardStatus { pools: vec![pool()], replicas, targets, lines: 0 };
    let text = render(&status).unwrap();
    for line in [
        "# TYPE pollux_pool_free_bytes gauge",
        "pollux_pool_free_bytes{pool=\"main\"} 70",
        "pollux_pool_failed{pool=\"main\"} 1",
        "pollux_log_lines_dropped_total 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
}

/// A data plane that answers, and counts how often it was asked.
fn shard() -> (Sender, Arc<AtomicUsize>) {
    let poll = mio::Poll::new().unwrap();
    let waker = mio::Waker::new(poll.registry(), mio::Token(0)).unwrap();
    let (sender, orders) = Sender::new(waker);
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    std::thread::spawn(move || {
        let _poll = poll;
        for order in orders {
            let Order::Status(tell) = order else { panic!("only figures are asked for") };
            count.fetch_add(1, Ordering::Relaxed);
            let (replicas, targets) = (Vec::new(), Vec::new());
            tell(ShardStatus { pools: vec![pool()], replicas, targets, lines: 0 });
        }
    });
    (sender, asked)
}

async fn scrape(at: SocketAddr) -> String {
    let mut stream = TcpStream::connect(at).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn many_who_ask_get_one_answer_and_idle_connections_lock_nobody_out() {
    let (sender, asked) = shard();
    let at = serve(SocketAddr::from(([127, 0, 0, 1], 0)), sender, |_, _| {}).await.unwrap();
    let begun = Instant::now();
    for _ in 0..20 {
        let answer = scrape(at).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("# EOF\n"), "{answer}");
    }
    let most = usize::try_from(begun.elapsed().as_secs()).unwrap() + 1;
    assert!(asked.load(Ordering::Relaxed) <= most, "{asked:?} in {:?}", begun.elapsed());

    let mut idle = Vec::new();
    for word in ["", "GET /met"].into_iter().cycle().take(100) {
        let mut stream = TcpStream::connect(at).await.unwrap();
        stream.write_all(word.as_bytes()).await.unwrap();
        idle.push(stream);
    }
    let answer = tokio::time::timeout(Duration::from_secs(10), scrape(at)).await;
    assert!(answer.expect("in time").ends_with("# EOF\n"));
    let first = tokio::time::timeout(Duration::from_secs(10), idle[0].read(&mut [0])).await;
    assert!(!matches!(first.expect("it is closed"), Ok(read) if read > 0));
}
