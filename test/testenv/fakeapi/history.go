package fakeapi

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// Object is an object that an API server stores.
type Object interface {
	metav1.Object
	runtime.Object
}

// History holds collections. Its lock guards them, and further state of its owner.
type History struct {
	sync.Mutex
	// Lag returns the delay of a watch's next event; below zero the watch breaks. Nil: no delay.
	Lag func() time.Duration

	collections []*Collection
	stalled     chan struct{} // while not nil, watches and cached lists don't advance
}

// Collection holds every version of all objects of a kind. The caller of its methods holds the
// History's lock.
type Collection struct {
	Objects map[string]Object // current objects, by name

	apiVersion, kind string
	history          []version     // index = resource version - 1
	changed          chan struct{} // closed with the next change
	horizon          int           // the resource version of watches while they are stalled
}

// version is an object's state from a resource version on.
type version struct {
	kind   watch.EventType
	object Object
}

// Collection adds an empty collection.
func (h *History) Collection(apiVersion, kind string) *Collection {
	c := &Collection{
		apiVersion: apiVersion, kind: kind, Objects: map[string]Object{}, changed: make(chan struct{}),
		// Version 1 is the empty collection: the resource version of a list is never 0.
		history: make([]version, 1),
	}
	h.collections = append(h.collections, c)
	return c
}

// Put stores a new version of an object, which must not be changed afterwards.
func (c *Collection) Put(kind watch.EventType, o Object) {
	o.SetResourceVersion(strconv.Itoa(len(c.history) + 1))
	o.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(c.apiVersion, c.kind))
	c.history = append(c.history, version{kind, o})
	if kind == watch.Deleted {
		delete(c.Objects, o.GetName())
	} else {
		c.Objects[o.GetName()] = o
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

// All returns the current objects, by name.
func (c *Collection) All() []Object { return c.at(len(c.history)) }

// at returns the objects of a resource version, by name.
func (c *Collection) at(rv int) []Object {
	then := map[string]Object{}
	for _, v := range c.history[1:rv] {
		if v.kind == watch.Deleted {
			delete(then, v.object.GetName())
		} else {
			then[v.object.GetName()] = v.object
		}
	}
	objects := make([]Object, 0, len(then))
	for _, name := range slices.Sorted(maps.Keys(then)) {
		objects = append(objects, then[name])
	}
	return objects
}

// Stall stops watches and cached lists from advancing until Resume. It reports whether they weren't
// stalled.
func (h *History) Stall() bool {
	if h.stalled != nil {
		return false
	}
	h.stalled = make(chan struct{})
	for _, c := range h.collections {
		c.horizon = len(c.history)
	}
	return true
}

// StallAt is Stall for a collection whose watches have advanced to a version only.
func (h *History) StallAt(c *Collection, version int) {
	h.Stall()
	c.horizon = version
}

// Resume ends Stall, and reports whether they were stalled.
func (h *History) Resume() bool {
	if h.stalled == nil {
		return false
	}
	close(h.stalled)
	h.stalled = nil
	return true
}

// List serves a LIST: the current objects or, if any version is acceptable, those of a cache that
// may be stalled. The caller holds the lock.
func (h *History) List(req *http.Request, c *Collection) any {
	at := len(c.history)
	if req.URL.Query().Get("resourceVersion") != "" && h.stalled != nil {
		at = c.horizon
	}
	return map[string]any{
		"kind": c.kind + "List", "apiVersion": c.apiVersion,
		"metadata": map[string]any{"resourceVersion": strconv.Itoa(at)}, "items": c.at(at),
	}
}

// Watch streams every version after the requested one, each with the delay of Lag.
func (h *History) Watch(req *http.Request, c *Collection) *http.Response {
	query := req.URL.Query()
	from, _ := strconv.Atoi(query.Get("resourceVersion"))
	initial, _ := strconv.ParseBool(query.Get("sendInitialEvents"))
	reader, writer := io.Pipe()
	go func() {
		defer writer.Close()
		stream := json.NewEncoder(writer)
		if initial {
			if from = h.sendAll(stream, c); from < 0 {
				return
			}
		}
		h.follow(req, stream, c, max(from, 1))
	}()
	return Response(http.StatusOK, reader)
}

// sendAll streams all objects and the bookmark that ends them, and returns their resource version.
func (h *History) sendAll(stream *json.Encoder, c *Collection) int {
	h.Lock()
	rv := len(c.history)
	if h.stalled != nil {
		rv = c.horizon
	}
	all := c.at(rv)
	h.Unlock()
	for _, o := range all {
		if send(stream, watch.Added, o) != nil {
			return -1
		}
	}
	end := &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{Kind: c.kind, APIVersion: c.apiVersion},
		ObjectMeta: metav1.ObjectMeta{
			ResourceVersion: strconv.Itoa(rv), Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
		},
	}
	if send(stream, watch.Bookmark, end) != nil {
		return -1
	}
	return rv
}

// follow streams versions until the client closes or the stream breaks.
func (h *History) follow(req *http.Request, stream *json.Encoder, c *Collection, from int) {
	for {
		h.Lock()
		var next *version
		block, delay := c.changed, time.Duration(0)
		switch {
		case h.stalled != nil && from >= c.horizon:
			block = h.stalled
		case from < len(c.history):
			next = &c.history[from]
			if h.Lag != nil {
				delay = h.Lag()
			}
		}
		h.Unlock()
		if delay < 0 {
			return // the client opens another watch for the rest
		}
		if next == nil {
			select {
			case <-block:
				continue
			case <-req.Context().Done():
				return
			}
		}
		if !Elapse(req.Context().Done(), delay) || send(stream, next.kind, next.object) != nil {
			return
		}
		from++
	}
}

// send writes one event. Versions in the history are immutable, so it needs no lock.
func send(stream *json.Encoder, kind watch.EventType, o Object) error {
	return stream.Encode(map[string]any{"type": kind, "object": o})
}
