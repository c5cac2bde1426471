//! A site that says what it is told to say.
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

/// One request that came.
#[derive(Clone, Debug)]
pub struct Asked {
    /// `GET /v1/site`.
    pub what: String,
    pub token: String,
    pub body: Value,
}

#[derive(Default)]
struct Inner {
    /// Each with its status; the last one of a request is said again and again.
    answers: Vec<(String, VecDeque<(u16, Value)>)>,
    asked: Vec<Asked>,
}

#[derive(Clone)]
pub struct FalseApi {
    inner: Arc<Mutex<Inner>>,
    pub address: String,
}

impl FalseApi {
    pub fn new() -> FalseApi {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let api = FalseApi { inner: Arc::default(), address };
        let serving = api.clone();
        // It ends with the process of the test.
        thread::spawn(move || {
            for stream in listener.incoming() {
                serving.serve(&stream.expect("a connection"));
            }
        });
        api
    }

    pub fn says(&self, what: &str, status: u16, answer: Value) -> &FalseApi {
        let mut inner = self.inner.lock().expect("nobody panics with it");
        match inner.answers.iter_mut().find(|(known, _)| known == what) {
            Some((_, answers)) => answers.push_back((status, answer)),
            None => inner.answers.push((what.into(), [(status, answer)].into())),
        }
        drop(inner);
        self
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.inner.lock().expect("nobody panics with it").asked.clone()
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
        for name in ["POLLUX_SITE", "POLLUX_TOKEN_FILE", "POLLUX_CA", "POLLUX_CHAP_SECRET"] {
            command.env_remove(name);
        }
        command.args(arguments).env("POLLUX_API", &self.address).env("POLLUX_TOKEN", "open-sesame");
        command.output().expect("the program starts")
    }

    #[track_caller]
    pub fn succeeds(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {error}");
        String::from_utf8(output.stdout).expect("the answer is text")
    }

    /// What a command says that fails.
    #[track_caller]
    pub fn fails(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let error = String::from_utf8(output.stderr).expect("errors are text");
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
        assert!(output.stdout.is_empty(), "{arguments:?}: there is no answer");
        error
    }

    fn serve(&self, stream: &TcpStream) {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).expect("a request");
        let what = line.rsplit_once(' ').map(|(what, _)| what.to_owned()).unwrap_or_default();
        let (mut token, mut len) = (String::new(), 0);
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).expect("a header");
            let Some((name, value)) = header.trim_end().split_once(": ") else { break };
            match name {
                "authorization" => token = value.into(),
                "content-length" => len = value.parse().expect("a number"),
                _ => {}
            }
        }
        let mut body = vec![0; len];
        reader.read_exact(&mut body).expect("a body");
        let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let (status, answer) = self.answer(Asked { what, token, body });
        let answer = answer.to_string();
        let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n", answer.len());
        let mut stream = stream;
        stream.write_all((head + &answer).as_bytes()).expect("somebody listens");
    }

    fn answer(&self, asked: Asked) -> (u16, Value) {
        let mut inner = self.inner.lock().expect("nobody panics with it");
        let path = asked.what.split('?').next().unwrap_or_default().to_owned();
        let known =
            inner.answers.iter_mut().find(|(known, _)| *known == asked.what || *known == path);
        let answer = match known {
            Some((_, answers)) if answers.len() > 1 => answers.pop_front(),
            Some((_, answers)) => answers.front().cloned(),
            None => None,
        };
        inner.asked.push(asked);
        let unknown = || json!({ "code": "notFound", "message": "there is no such thing" });
        answer.unwrap_or_else(|| (404, unknown()))
    }
}
