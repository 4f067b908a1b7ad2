//! Opens a page in Chromium, runs a script in it, and returns the script's result.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The time that a script may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Returns the browser, if there is one.
fn chromium() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("MILLPOND_CHROMIUM") {
        return Some(named.into());
    }
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    std::env::split_paths(&path).flat_map(|folder| names.map(|name| folder.join(name))).find(|it| it.is_file())
}

/// Runs a script in a page once that is drawn. Returns its result, or `None` with a message if there is no browser. The
/// script is the body of an async function; `page` is the page's own object.
pub(crate) fn ask(name: &str, html: &str, script: &str) -> Option<Value> {
    let Some(chromium) = chromium() else {
        println!("skipped: no Chromium on the path, and MILLPOND_CHROMIUM names none");
        return None;
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = format!(
        "<script>(async () => {{
            let answer;
            try {{
                while (!window.page && !document.getElementById('name').textContent.startsWith('This page')) {{
                    await new Promise((done) => setTimeout(done, 10));
                }}
                if (!window.page) throw new Error(document.getElementById('facts').textContent);
                const page = window.page, $ = (id) => document.getElementById(id);
                const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
                answer = await (async () => {{ {script}
 }})();
            }} catch (error) {{ answer = {{ error: String(error.stack || error) }}; }}
            const body = JSON.stringify(answer ?? null);
            fetch('http://127.0.0.1:{port}/', {{ method: 'POST', mode: 'no-cors', body }});
        }})();</script></body>"
    );
    let file = super::to(&format!("{name}.html"));
    std::fs::write(&file, html.replace("</body>", &asked)).unwrap();
    let mut browser = Browser::open(&chromium, &file, &super::to(&format!("{name}.profile")));
    let answer = receive(&listener, &mut browser);
    drop(browser);
    let answer = serde_json::from_str::<Value>(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"));
    assert!(answer.get("error").is_none(), "{}", answer["error"].as_str().unwrap_or_default());
    Some(answer)
}

/// A browser that ends with its test.
struct Browser {
    child: Child,
    profile: PathBuf,
}

impl Browser {
    fn open(chromium: &Path, file: &Path, profile: &Path) -> Self {
        let child = Command::new(chromium)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1440,900"])
            .args([
                "--remote-debugging-port=0",
                "--no-first-run",
                "--disable-extensions",
                "--js-flags=--stack-size=900",
            ])
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg(format!("file://{}", file.display()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the browser starts");
        Self { child, profile: profile.to_owned() }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.profile);
    }
}

/// Returns the body of the first request that has one.
fn receive(listener: &TcpListener, browser: &mut Browser) -> String {
    listener.set_nonblocking(true).unwrap();
    let began = Instant::now();
    loop {
        match listener.accept() {
            Ok((mut stream, _)) => {
                if let Some(body) = body(&mut stream) {
                    return body;
                }
            }
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
        if let Some(status) = browser.child.try_wait().unwrap() {
            panic!("the browser ended without an answer: {status}");
        }
        assert!(began.elapsed() < PATIENCE, "the page has not answered in {PATIENCE:?}");
    }
}

fn body(stream: &mut TcpStream) -> Option<String> {
    stream.set_nonblocking(false).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let read = stream.read(&mut piece).ok()?;
        bytes.extend(&piece[..read]);
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length =
                head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
            if body.len() >= length.unwrap_or(0) {
                let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nAccess-Control-Allow-Origin: *\r\n\r\n");
                return length.is_some().then(|| body.to_owned());
            }
        }
        if read == 0 {
            return None;
        }
    }
}
