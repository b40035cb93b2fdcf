package cloud

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/internal/kube"
)

// errOtherAddress means that the kubelet contradicts the cloud or the inventory.
var errOtherAddress = errors.New("the kubelet's --node-ip is not an address of the machine")

// Mismatches is an InstancesV2 that reports Nodes with a wrong kubelet address: such a Node
// stays uninitialized until its kubelet has another address.
type Mismatches struct {
	cloudprovider.InstancesV2
	Client   kubernetes.Interface
	Recorder record.EventRecorder
}

// InstanceMetadata implements cloudprovider.InstancesV2.
func (m Mismatches) InstanceMetadata(
	ctx context.Context, node *corev1.Node,
) (*cloudprovider.InstanceMetadata, error) {
	metadata, err := m.InstancesV2.InstanceMetadata(ctx, node)
	shown := kube.Condition(node, kube.AddressesMatch)
	switch {
	case errors.Is(err, errOtherAddress):
		m.Recorder.Event(node, corev1.EventTypeWarning, "AddressMismatch", err.Error())
		if shown == nil || shown.Status != corev1.ConditionFalse || shown.Message != err.Error() {
			m.set(ctx, node, corev1.ConditionFalse, "AddressMismatch", err.Error())
		}
	case metadata != nil && shown != nil && shown.Status == corev1.ConditionFalse:
		m.set(ctx, node, corev1.ConditionTrue, "AddressesMatch",
			"the kubelet's addresses are the machine's")
	}
	return metadata, err
}

// set writes the condition. A failed write is retried when upstream requests the metadata again,
// every few minutes: nothing depends on it.
func (m Mismatches) set(
	ctx context.Context, node *corev1.Node, status corev1.ConditionStatus, reason, message string,
) {
	c := corev1.NodeCondition{
		Type: kube.AddressesMatch, Status: status, Reason: reason, Message: message,
	}
	if _, err := kube.SetCondition(ctx, m.Client, node, c, time.Now()); err != nil {
		klog.FromContext(ctx).Error(err, "Condition not written", "node", node.Name)
	}
}
