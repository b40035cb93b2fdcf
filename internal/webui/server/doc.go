// Package server serves the page of `underlayctl ui` to the browser of the person who
// started it: the page itself, which is embedded, what it shows, which the browser requests
// every two seconds while a person can see it, searches, and the timeline of a Node or a Service.
//
// It must never answer anybody else. It listens on loopback only and knows no way to
// listen elsewhere; every path begins with a key that only the printed URL has, since
// others may have accounts on the machine; a request whose Host is no loopback name is
// refused, since a page of a stranger's may have had its name point to 127.0.0.1 (DNS
// rebinding). It takes no writes: GET and HEAD alone. The page loads nothing from
// anywhere else, and its Content-Security-Policy (https://www.w3.org/TR/CSP3/) lets it
// load nothing.
package server
