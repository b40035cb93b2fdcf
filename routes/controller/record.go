package controller

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"

	"github.com/underlay-ccm/underlay/routes"
)

// RecordName is the ConfigMap of kube-system that holds the routes which this
// cluster wrote or adopted.
const RecordName = "underlay-routes"

const (
	// recordTimeout bounds one request for the stored record.
	recordTimeout = 5 * time.Second
	// shortPause and longPause are the least and the most time between a failed
	// request for the stored record and the next one. What is written meanwhile is
	// known to this process alone, so the first comes soon.
	shortPause, longPause = time.Second, time.Minute
	// forgetAfter is how long no list of the table may have had a route before the
	// record drops it: much longer than a request for it can be under way.
	forgetAfter = 10 * time.Minute
)

// storedRecord is what this cluster wrote or adopted: what the API server has, and
// what this process did and could not store yet.
type storedRecord struct {
	client kubernetes.Interface

	routes routes.Record
	loaded bool              // what is stored is known
	object *corev1.ConfigMap // as it is stored, nil: there is none
	stored routes.Record     // what object holds
	// missing is since when no list had a route.
	missing map[routes.Route]time.Time
	err     error // of the last request, nil if it succeeded
	pauses  workqueue.TypedRateLimiter[string]
	retry   time.Time // after that one failed
}

func newRecord(client kubernetes.Interface) *storedRecord {
	return &storedRecord{
		client: client, routes: routes.Record{}, missing: map[routes.Route]time.Time{},
		pauses: workqueue.NewTypedItemExponentialFailureRateLimiter[string](shortPause, longPause),
	}
}

// load reads what is stored, once. If that fails, only what this process wrote or
// adopted is known, so nothing else is ours to delete.
func (r *storedRecord) load(ctx context.Context, now time.Time) {
	if r.loaded || now.Before(r.retry) {
		return
	}
	r.note(r.read(ctx), now)
}

// note keeps the outcome of a request.
func (r *storedRecord) note(err error, now time.Time) {
	if r.err = err; err != nil {
		r.retry = now.Add(r.pauses.When(RecordName))
	} else {
		r.pauses.Forget(RecordName)
	}
}

// wait is how long to wait until what failed is tried again, if anything is.
func (r *storedRecord) wait(now time.Time) (wait time.Duration, any bool) {
	return r.retry.Sub(now), r.retry.After(now)
}

// read gets the ConfigMap and adds what it holds. An entry that can't be read says
// nothing, and goes with the next write.
func (r *storedRecord) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	live, err := r.client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, RecordName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		r.loaded, r.object, r.stored = true, nil, routes.Record{}
		return nil
	case err != nil:
		return fmt.Errorf("reading ConfigMap %s/%s: %w", metav1.NamespaceSystem, RecordName, err)
	}
	r.loaded, r.object = true, live
	if r.stored, err = routes.ParseRecord(live.Data); err != nil {
		err = fmt.Errorf("ConfigMap %s/%s: %w", metav1.NamespaceSystem, RecordName, err)
	}
	maps.Copy(r.routes, r.stored)
	return err
}

// listed takes a list of the table, asked for at a time.
func (r *storedRecord) listed(table []routes.Route, asked time.Time) {
	stands := make(map[routes.Route]bool, len(table))
	for _, route := range table {
		stands[route] = true
	}
	for route := range r.routes {
		if _, before := r.missing[route]; stands[route] {
			delete(r.missing, route)
		} else if !before {
			r.missing[route] = asked
		}
	}
}

// keep adds routes, drops those that have been missing for long, and stores the
// outcome in one write if it differs from what is stored. What can't be stored now
// is known to this process, and stored later.
func (r *storedRecord) keep(ctx context.Context, wanted []routes.Route, now time.Time) {
	for route, since := range r.missing {
		if now.Sub(since) > forgetAfter {
			delete(r.routes, route)
			delete(r.missing, route)
		}
	}
	for _, route := range wanted {
		r.routes[route] = true
		delete(r.missing, route) // it is about to be asked for, or stands
	}
	if maps.Equal(r.routes, r.stored) || now.Before(r.retry) {
		return
	}
	r.note(r.store(ctx), now)
}

// store writes the record if nobody else did since it was read. If somebody did,
// or it isn't known what is stored, that is read first and kept.
func (r *storedRecord) store(ctx context.Context) error {
	if r.loaded {
		err := r.write(ctx)
		if err == nil || !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) {
			return err
		}
	}
	if err := r.read(ctx); !r.loaded {
		return err
	}
	return r.write(ctx)
}

func (r *storedRecord) write(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	configMaps, written := r.client.CoreV1().ConfigMaps(metav1.NamespaceSystem), maps.Clone(r.routes)
	var live *corev1.ConfigMap
	var err error
	if r.object == nil {
		live, err = configMaps.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Name: RecordName, Namespace: metav1.NamespaceSystem,
				Labels:      map[string]string{"app.kubernetes.io/part-of": "underlay"},
				Annotations: map[string]string{"underlay.dev/about": "Which routes of the cloud's network this cluster wrote or adopted, by destination. Only these are ever deleted. Don't delete: routes of Nodes that are gone would stay."},
			},
			Data: written.Text(),
		}, metav1.CreateOptions{})
	} else {
		changed := r.object.DeepCopy()
		changed.Data = written.Text()
		live, err = configMaps.Update(ctx, changed, metav1.UpdateOptions{})
	}
	if err != nil {
		// It may have been applied all the same.
		r.loaded = false
		return fmt.Errorf("writing ConfigMap %s/%s: %w", metav1.NamespaceSystem, RecordName, err)
	}
	r.object, r.stored = live, written
	return nil
}
