package simcluster

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// feed is a watch that buffers any number of events for a slow reader: client-go's own fake panics
// at a hundred.
type feed struct {
	out  chan watch.Event
	wake chan struct{} // capacity of one
	stop chan struct{}
	once sync.Once

	mu    sync.Mutex
	queue []watch.Event
}

func newFeed() *feed {
	f := &feed{out: make(chan watch.Event), wake: make(chan struct{}, 1), stop: make(chan struct{})}
	go f.pump()
	return f
}

// ResultChan implements watch.Interface.
func (f *feed) ResultChan() <-chan watch.Event { return f.out }

// Stop implements watch.Interface.
func (f *feed) Stop() { f.once.Do(func() { close(f.stop) }) }

func (f *feed) add(kind watch.EventType, object runtime.Object) {
	f.mu.Lock()
	f.queue = append(f.queue, watch.Event{Type: kind, Object: object.DeepCopyObject()})
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *feed) take() []watch.Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	taken := f.queue
	f.queue = nil
	return taken
}

func (f *feed) pump() {
	defer close(f.out)
	for {
		for _, e := range f.take() {
			select {
			case f.out <- e:
			case <-f.stop:
				return
			}
		}
		select {
		case <-f.wake:
		case <-f.stop:
			return
		}
	}
}
