package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/ipam"
)

// LedgerName is the name of the stored ledger's ConfigMap, or of its root if there are shards.
const LedgerName = "underlay-node-ipam"

// ObjectName returns the name of the root's or a shard's ConfigMap.
func ObjectName(object int) string {
	if object == ipam.RootObject {
		return LedgerName
	}
	return fmt.Sprintf("%s-%d", LedgerName, object)
}

// storeTimeout bounds one request to the stored ledger.
const storeTimeout = 30 * time.Second

const (
	// readTries limits the reads of a shard before all are read again. readPause is the first
	// pause between them, and doubles each time.
	readTries = 4
	readPause = 100 * time.Millisecond
	// readers limits concurrent reads of shards.
	readers = 16
)

// store reads and writes the ConfigMaps of the ledger. It decides nothing.
type store struct {
	client    kubernetes.Interface
	namespace string
}

// stored is the ledger as read from the API server: the root, and the shards that it lists.
type stored struct {
	objects map[int]*corev1.ConfigMap // without their data; missing: no such ConfigMap
	entries map[int]map[string]string
}

func (s stored) exists() bool { return s.objects[ipam.RootObject] != nil }

// unrooted reports whether the root is missing or was emptied. In use it has an entry per pool.
func (s stored) unrooted() bool { return len(s.entries[ipam.RootObject]) == 0 }

// lost returns the names of the ConfigMaps that should have entries and have none.
func (s stored) lost() (names []string) {
	for _, object := range ipam.Lost(s.entries) {
		names = append(names, ObjectName(object))
	}
	return names
}

func (s stored) put(object int, live *corev1.ConfigMap, entries map[string]string) {
	s.entries[object] = entries
	s.objects[object] = live.DeepCopy()
	s.objects[object].Data = nil
}

// read gets the root, not from a cache, and the shards that it lists; if all is set and there
// is no root, all existing shards. Shards in known are not read again if the root's list is
// the same: a write of a shard that has changed since is rejected.
func (s store) read(ctx context.Context, all bool, known stored) (stored, error) {
	found := stored{map[int]*corev1.ConfigMap{}, map[int]map[string]string{}}
	root, err := s.get(ctx, ipam.RootObject)
	if err != nil {
		return stored{}, err
	}
	if root != nil {
		found.put(ipam.RootObject, root, root.Data)
	}
	shards := ipam.Listed(found.entries[ipam.RootObject])
	if all && found.unrooted() {
		for number := range ipam.MaxShards {
			shards = append(shards, number+1)
		}
	}
	if !sameLayout(known.entries[ipam.RootObject], found.entries[ipam.RootObject]) {
		known = stored{}
	}
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for _, number := range shards {
		group.Go(func() (err error) {
			live, entries := known.objects[number], known.entries[number]
			if live == nil {
				if live, err = s.getShard(ctx, number); err != nil || live == nil {
					return err
				}
				entries = live.Data
			}
			mu.Lock()
			defer mu.Unlock()
			found.put(number, live, entries)
			return nil
		})
	}
	return found, group.Wait()
}

// sameLayout reports whether two roots list the same shards with the same blocks and generations.
func sameLayout(a, b map[string]string) bool {
	listings := func(root map[string]string) map[string]string {
		listed := maps.Clone(root)
		maps.DeleteFunc(listed, func(key, _ string) bool { return !strings.HasPrefix(key, ipam.ShardPrefix) })
		return listed
	}
	return maps.Equal(listings(a), listings(b))
}

// getShard reads a shard, with retries: a lost reply must not cause all shards to be read again.
func (s store) getShard(ctx context.Context, number int) (live *corev1.ConfigMap, err error) {
	again := wait.Backoff{Duration: readPause, Factor: 2, Steps: readTries}
	stopped := wait.ExponentialBackoffWithContext(ctx, again, func(ctx context.Context) (done bool, _ error) {
		live, err = s.get(ctx, number)
		return err == nil || apierrors.IsForbidden(err), nil
	})
	if err == nil && stopped != nil {
		return nil, stopped // it was never read
	}
	return live, err
}

// get reads a ConfigMap. It returns nil without an error if the ConfigMap doesn't exist.
func (s store) get(ctx context.Context, object int) (*corev1.ConfigMap, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	name := ObjectName(object)
	live, err := s.client.CoreV1().ConfigMaps(s.namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case kube.Absent(err, "configmaps", name):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading the stored ledger, ConfigMap %s/%s: %w", s.namespace, name, err)
	}
	return live, nil
}

// create fails if the ConfigMap exists.
func (s store) create(ctx context.Context, object int) (*corev1.ConfigMap, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	live, err := s.client.CoreV1().ConfigMaps(s.namespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: ObjectName(object), Namespace: s.namespace,
			Labels:      map[string]string{"app.kubernetes.io/part-of": "underlay"},
			Annotations: map[string]string{"underlay.dev/about": "Which Node holds which podCIDRs, written before they are handed out. Don't delete: allocation stops until it is rebuilt."},
		},
	}, metav1.CreateOptions{FieldManager: fieldManager})
	if err != nil {
		return nil, fmt.Errorf("creating the stored ledger, ConfigMap %s/%s: %w", s.namespace, ObjectName(object), err)
	}
	return live, nil
}

// write replaces a ConfigMap if its version is unchanged, and returns the new version. It
// sends the whole object, because the API server merges a patch of thousands of keys several
// times more slowly, and requests only the metadata in the reply, which would be as large.
func (s store) write(ctx context.Context, object *corev1.ConfigMap) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	raw, err := s.client.CoreV1().RESTClient().Put().
		Namespace(s.namespace).Resource("configmaps").Name(object.Name).
		Param("fieldManager", fieldManager).
		SetHeader("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1").
		Body(object).Do(ctx).Raw()
	var reply metav1.PartialObjectMetadata
	if err == nil {
		err = json.Unmarshal(raw, &reply)
	}
	if err == nil && reply.ResourceVersion == "" {
		err = errors.New("the response has no resourceVersion")
	}
	if err != nil {
		return "", fmt.Errorf("writing the stored ledger, ConfigMap %s/%s: %w", s.namespace, object.Name, err)
	}
	return reply.ResourceVersion, nil
}

// untracked disables managedFields, which are long with a key per Node and rebuilt on each write.
func untracked() []metav1.ManagedFieldsEntry { return []metav1.ManagedFieldsEntry{{}} }

// An order is one write of the stored ledger.
type order struct {
	write  ipam.Write
	object *corev1.ConfigMap // desired content; nil if it is only opened
}

// A receipt is the result of an order.
type receipt struct {
	write  ipam.Write
	object *corev1.ConfigMap // current content
	err    error             // the write may or may not have been applied
}

func (s store) execute(ctx context.Context, o order) receipt {
	if o.write.Open {
		live, err := s.get(ctx, o.write.Object)
		if err == nil && live == nil {
			live, err = s.create(ctx, o.write.Object)
		}
		return receipt{o.write, live, err}
	}
	version, err := s.write(ctx, o.object)
	if err != nil && !apierrors.IsConflict(err) {
		// Perhaps only the reply was lost.
		if live, unread := s.get(ctx, o.write.Object); unread == nil && live != nil && maps.Equal(live.Data, o.object.Data) {
			o.object, version, err = live, live.ResourceVersion, nil
		}
	}
	if err != nil {
		return receipt{o.write, nil, err}
	}
	now := o.object
	now.ResourceVersion, now.Data = version, nil
	// The server keeps its own; only a user's server-side apply adds some.
	now.ManagedFields = nil
	return receipt{o.write, now, nil}
}

// runWriter carries out orders serially until the context ends.
func (s store) runWriter(ctx context.Context, orders <-chan order, receipts chan<- receipt) {
	for {
		select {
		case <-ctx.Done():
			return
		case o := <-orders:
			select {
			case receipts <- s.execute(ctx, o):
			case <-ctx.Done():
				return
			}
		}
	}
}
