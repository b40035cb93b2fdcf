package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/kube"
)

const (
	requestTimeout = 15 * time.Second
	fieldManager   = "underlay-addresses"
)

// errDamaged reports an unreadable ledger: no address is assigned or moved until it is repaired.
var errDamaged = errors.New("the stored ledger is damaged")

// stored is the ledger as last read or written.
type stored struct {
	ledger addresses.Ledger
	text   string
	object *corev1.ConfigMap // nil if it does not exist
}

// lost reports whether no ledger is stored: the cluster is new, or the ledger was deleted.
func (s stored) lost() bool { return s.text == "" }

type store struct {
	client    kubernetes.Interface
	namespace string
}

// read reads the ledger from the API server, bypassing caches.
func (s store) read(ctx context.Context) (stored, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	live, err := s.client.CoreV1().ConfigMaps(s.namespace).Get(ctx, addresses.LedgerName,
		metav1.GetOptions{})
	switch {
	case kube.Absent(err, "configmaps", addresses.LedgerName):
		return stored{}, nil
	case err != nil:
		return stored{},
			fmt.Errorf("reading the stored ledger of addresses, ConfigMap %s/%s: %w", s.namespace,
				addresses.LedgerName, err)
	}
	found := stored{object: live, text: live.Data[addresses.LedgerKey]}
	if found.ledger, err = addresses.ParseLedger([]byte(found.text)); err != nil {
		return stored{}, fmt.Errorf("%w: ConfigMap %s/%s, key %s: %w; restore its last good value, or delete the ConfigMap: it is rebuilt from the Services' status and the nodes' reports",
			errDamaged, s.namespace, addresses.LedgerName, addresses.LedgerKey, err)
	}
	return found, nil
}

// write stores a ledger if the ConfigMap is unchanged since read, and returns the new ConfigMap. A
// change is a conflict, see isConflict; after other errors the stored ledger is unknown.
func (s store) write(
	ctx context.Context, read *corev1.ConfigMap, text string,
) (live *corev1.ConfigMap, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	maps := s.client.CoreV1().ConfigMaps(s.namespace)
	if read == nil {
		live, err = maps.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Name: addresses.LedgerName, Namespace: s.namespace,
				Labels:      map[string]string{"app.kubernetes.io/part-of": "underlay"},
				Annotations: map[string]string{"underlay.dev/about": "Which Service has which address, and which node holds it. Don't delete or edit."},
			},
			Data: map[string]string{addresses.LedgerKey: text},
		}, metav1.CreateOptions{FieldManager: fieldManager})
	} else {
		next := read.DeepCopy()
		if next.Data == nil {
			next.Data = make(map[string]string)
		}
		next.Data[addresses.LedgerKey] = text
		live, err = maps.Update(ctx, next, metav1.UpdateOptions{FieldManager: fieldManager})
	}
	if err != nil {
		return nil,
			fmt.Errorf("writing the stored ledger of addresses, ConfigMap %s/%s: %w", s.namespace,
				addresses.LedgerName, err)
	}
	return live, nil
}

func isConflict(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) ||
		kube.Absent(err, "configmaps", addresses.LedgerName)
}
