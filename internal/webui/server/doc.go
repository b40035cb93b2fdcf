// Package server serves the page of `underlayctl ui` to the browser of the user who started it:
// the embedded page, its data, which the browser requests every two seconds while the page is
// visible, search results, and the timeline of a Node or a Service.
//
// It must never respond to another user or site. It listens on loopback only and has no option
// to listen elsewhere. Every path begins with a key that only the printed URL contains, because
// other users may have accounts on the machine. It rejects requests with a Host that is no
// loopback name, because another site may resolve its own name to 127.0.0.1 (DNS rebinding). It
// allows no writes, only GET and HEAD. The page loads nothing from elsewhere, and its
// Content-Security-Policy (https://www.w3.org/TR/CSP3/) forbids that.
package server
