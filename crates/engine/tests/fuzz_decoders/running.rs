//! Inputs from seeds, until the time is over; what panicked, and where.
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The time that one input may take before it counts as a loop. One takes milliseconds.
const STUCK: Duration = Duration::from_secs(30);

/// Splitmix64: small, and the same everywhere.
pub struct Rng(u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).expect("a number below a length is an index")
    }

    pub fn chance(&mut self) -> bool {
        self.below(2) == 0
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&self.next().to_le_bytes()[..part.len()]);
        }
    }
}

#[derive(Default)]
struct Told {
    /// What is being tried, while something is.
    input: Option<String>,
    panic: String,
}

thread_local! {
    static TOLD: RefCell<Told> = RefCell::default();
}

/// Says what the present input is, for whoever has to look at its panic.
pub fn note(input: String) {
    TOLD.with_borrow_mut(|told| told.input = Some(input));
}

/// A panic, how often it came, and the simplest input that led there.
struct Found {
    times: u64,
    seed: u64,
    input: String,
}

/// Runs inputs until the time is over. Fails with every distinct panic, and when nothing ran.
pub fn fuzz(what: &str, mut one: impl FnMut(&mut Rng)) {
    let number = |name: &str| {
        let text = std::env::var(name).ok()?;
        Some(text.parse::<u64>().unwrap_or_else(|_| panic!("{name}={text} is no number")))
    };
    let time = Duration::from_secs(number("POLLUX_FUZZ_SECONDS").unwrap_or(2));
    let first = number("POLLUX_FUZZ_SEED").unwrap_or_else(fresh_seed);
    println!("{what}: from POLLUX_FUZZ_SEED={first} on, for {} seconds", time.as_secs());
    collect_panics();
    let watch = Watch::over(what.to_owned());
    let mut panics: BTreeMap<String, Found> = BTreeMap::new();
    let (begun, mut inputs) = (Instant::now(), 0u64);
    while begun.elapsed() < time {
        let seed = first.wrapping_add(inputs);
        watch.begin(seed);
        note("nothing yet".into());
        let result = panic::catch_unwind(AssertUnwindSafe(|| one(&mut Rng(seed))));
        let told = TOLD.take();
        inputs += 1;
        if result.is_err() {
            let input = told.input.unwrap_or_default();
            let found = panics.entry(told.panic).or_insert_with(|| Found {
                times: 0,
                seed,
                input: input.clone(),
            });
            found.times += 1;
            // The shortest is the easiest to understand.
            if input.len() < found.input.len() {
                (found.seed, found.input) = (seed, input);
            }
        }
    }
    println!("{what}: {inputs} inputs, {} distinct panics", panics.len());
    assert!(inputs > 0, "{what}: nothing ran");
    let mut list = String::new();
    for (panic, Found { times, seed, input }) in &panics {
        let _ = writeln!(list, "{times} x {panic}\n    POLLUX_FUZZ_SEED={seed}: {input}");
    }
    assert!(panics.is_empty(), "{what}: {} panics in {inputs} inputs:\n{list}", panics.len());
}

fn fresh_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970");
    now.as_secs() % 1_000_000 * 1_000_000_000 + u64::from(now.subsec_nanos())
}

/// From here on a panic while an input is tried is remembered instead of shown.
fn collect_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if TOLD.with_borrow(|told| told.input.is_none()) {
                return usual(panic);
            }
            let place = panic.location().map_or_else(String::new, ToString::to_string);
            let text = panic.payload_as_str().unwrap_or_default();
            // Numbers differ from input to input; the place tells panics apart.
            let words = text.split_whitespace().filter(|word| !word.contains(char::is_numeric));
            let words: Vec<&str> = words.collect();
            TOLD.with_borrow_mut(|told| told.panic = format!("{place}: {}", words.join(" ")));
        }));
    });
}

/// Ends the process when an input takes too long: nothing else ends a loop without end.
struct Watch {
    seed: Arc<AtomicU64>,
    beat: mpsc::Sender<()>,
    /// Has the seed of the present input: where memory runs out, nobody is left to tell.
    kept: File,
}

impl Watch {
    fn over(what: String) -> Watch {
        let name = format!("{}.seed", what.replace(' ', "-"));
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        println!("{what}: the seed under way is in {}", path.display());
        let kept = File::create(path).expect("cargo made the folder");
        let (beat, beats) = mpsc::channel();
        let seed = Arc::new(AtomicU64::new(0));
        let tried = Arc::clone(&seed);
        std::thread::spawn(move || {
            loop {
                match beats.recv_timeout(STUCK) {
                    Ok(()) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) => {
                        let seed = tried.load(Ordering::Relaxed);
                        // Not `eprintln`: what a test prints is kept back, and an abort loses it.
                        let text = format!("\n{what}: POLLUX_FUZZ_SEED={seed} does not end\n");
                        let _ = std::io::stderr().write_all(text.as_bytes());
                        std::process::abort();
                    }
                }
            }
        });
        Watch { seed, beat, kept }
    }

    fn begin(&self, seed: u64) {
        self.seed.store(seed, Ordering::Relaxed);
        let text = format!("{seed:020}\n");
        self.kept.write_all_at(text.as_bytes(), 0).expect("a seed fits every disk");
        self.beat.send(()).expect("the watch lives as long as its sender");
    }
}

/// The most memory that was ever resident, where the system tells.
pub fn resident_peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) / 1024
}
