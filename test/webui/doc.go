// Package webui opens the page of `underlayctl ui` in a real browser, Debian's chromium
// without a window, and compares what it shows with what it was given: at 3, 100 and 500
// machines, by keyboard, in the dark. Every request of the browser is watched: none may
// go elsewhere than to the page's own server on loopback.
//
// The pictures of the page in the documents are made by it:
//
//	go test ./test/webui -run TestPictures -update
//
// It must never use a browser's profile that is anybody's, nor reach out of the machine.
package webui
