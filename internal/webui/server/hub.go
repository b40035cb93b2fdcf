package server

import (
	"bytes"
	"encoding/json"
	"sync"
)

// hub has what is shown now and tells each browser when that changes. A browser that
// is slow misses what was in between.
type hub struct {
	mu       sync.Mutex
	page     page
	browsers map[chan struct{}]struct{}
}

func newHub() *hub { return &hub{browsers: map[chan struct{}]struct{}{}} }

func (h *hub) show(p page) {
	p.text, _ = json.Marshal(p.message) // a View is text and numbers
	h.mu.Lock()
	defer h.mu.Unlock()
	if bytes.Equal(p.text, h.page.text) {
		return
	}
	h.page = p
	for b := range h.browsers {
		select {
		case b <- struct{}{}:
		default: // told already, and not awake yet
		}
	}
}

func (h *hub) now() page {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.page
}

// join adds a browser, whose channel has an entry at once. More than limit are
// refused.
func (h *hub) join(limit int) (news chan struct{}, leave func(), ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.browsers) >= limit {
		return nil, nil, false
	}
	news = make(chan struct{}, 1)
	news <- struct{}{}
	h.browsers[news] = struct{}{}
	return news, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.browsers, news)
	}, true
}
