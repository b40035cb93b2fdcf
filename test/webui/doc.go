// Package webui opens the page of `underlayctl ui` in a real browser, Debian's chromium without a
// window, and compares its content with the snapshot: with 3, 100 and 500 machines, by keyboard, in
// dark mode. Every request of the browser is checked: all must be sent to the page's own server on
// loopback.
//
// It makes the pictures of the page in the documents:
//
//	go test ./test/webui -run TestPictures -update
//
// It must never use a user's browser profile, nor connect to other machines.
package webui
