//! Figures of the control plane for Prometheus. They tell nothing of what the site holds, so that no token
//! is needed.
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

const CONTENT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub fn render() -> impl IntoResponse {
    ([(CONTENT_TYPE, CONTENT)], text(logging::lines_dropped()))
}

fn text(lines_dropped: u64) -> String {
    let name = "pollux_log_lines_dropped";
    format!(
        "# HELP {name} Lines of the log that could not be written, or not fast enough.\n\
         # TYPE {name} counter\n\
         {name}_total {lines_dropped}\n\
         # EOF\n"
    )
}

#[cfg(test)]
mod tests {
    #[test]
    fn dropped_lines_are_a_counter() {
        let text = super::text(7);
        assert!(text.contains("\npollux_log_lines_dropped_total 7\n"), "{text}");
        assert!(text.ends_with("# EOF\n"));
    }
}
