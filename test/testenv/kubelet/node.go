package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"runtime"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	cloudproviderapi "k8s.io/cloud-provider/api"
	"k8s.io/utils/ptr"

	"github.com/underlay-ccm/underlay/internal/kube"
)

const (
	kubeletVersion = "v1.37.1"
	kubeletPort    = 10250
	// leaseSeconds is the duration of a kubelet's Lease. It has no effect: the node lifecycle
	// controller has its own grace period.
	leaseSeconds = 40
)

// initialNode is the Node that a kubelet registers.
func initialNode(options Options, now time.Time) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: options.Name,
			Labels: map[string]string{
				corev1.LabelHostname:      options.Name,
				corev1.LabelOSStable:      "linux",
				corev1.LabelArchStable:    runtime.GOARCH,
				"beta.kubernetes.io/os":   "linux",
				"beta.kubernetes.io/arch": runtime.GOARCH,
			},
			Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
		},
		Spec: corev1.NodeSpec{
			ProviderID: options.ProviderID,
			Taints: []corev1.Taint{{
				Key:    cloudproviderapi.TaintExternalCloudProvider,
				Value:  "true",
				Effect: corev1.TaintEffectNoSchedule,
			}},
		},
		Status: corev1.NodeStatus{
			Capacity:    resources("2", "4Gi", "40Gi", "110"),
			Allocatable: resources("2", "3900Mi", "36Gi", "110"),
			Addresses:   addresses(options),
			Conditions:  conditions(nil, false, now),
			DaemonEndpoints: corev1.NodeDaemonEndpoints{
				KubeletEndpoint: corev1.DaemonEndpoint{Port: kubeletPort},
			},
			NodeInfo: corev1.NodeSystemInfo{
				KubeletVersion:          kubeletVersion,
				ContainerRuntimeVersion: "none://0",
				OSImage:                 "none",
				OperatingSystem:         "linux",
				Architecture:            runtime.GOARCH,
			},
		},
	}
	if len(options.InternalIPs) > 0 {
		addresses := joinAddresses(options.InternalIPs)
		node.Annotations[cloudproviderapi.AnnotationAlphaProvidedIPAddr] = addresses
	}
	if options.WithoutProvider {
		node.Spec.Taints = nil
	}
	maps.Copy(node.Labels, options.Labels)
	return node
}

func resources(cpu, memory, storage, pods string) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse(cpu),
		corev1.ResourceMemory:           resource.MustParse(memory),
		corev1.ResourceEphemeralStorage: resource.MustParse(storage),
		corev1.ResourcePods:             resource.MustParse(pods),
	}
}

// addresses are a kubelet's guess; a cloud controller manager replaces them.
func addresses(options Options) []corev1.NodeAddress {
	var all []corev1.NodeAddress
	for _, ip := range options.InternalIPs {
		all = append(all, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip.String()})
	}
	return append(all, corev1.NodeAddress{Type: corev1.NodeHostName, Address: options.Name})
}

// Report acts as a kubelet that was restarted with another --node-ip: it annotates its Node, and
// leaves the addresses to the cloud controller manager.
func Report(ctx context.Context, client kubernetes.Interface, node string, ips []netip.Addr) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]string{cloudproviderapi.AnnotationAlphaProvidedIPAddr: joinAddresses(ips)},
	}})
	if err != nil {
		return fmt.Errorf("encode the addresses: %w", err)
	}
	if _, err := client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("report the addresses of node %s: %w", node, err)
	}
	return nil
}

func joinAddresses(ips []netip.Addr) string {
	texts := make([]string, len(ips))
	for i, ip := range ips {
		texts[i] = ip.String()
	}
	return strings.Join(texts, ",")
}

// conditions are the four conditions of a kubelet. The transition time is kept if the status is
// unchanged.
func conditions(before []corev1.NodeCondition, ready bool, now time.Time) []corev1.NodeCondition {
	all := []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory", Message: "kubelet has sufficient memory available"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure", Message: "kubelet has no disk pressure"},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID", Message: "kubelet has sufficient PID available"},
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"},
	}
	if !ready {
		all[3].Status = corev1.ConditionFalse
		all[3].Reason = "KubeletNotReady"
		all[3].Message = "container runtime network not ready: no pod network"
	}
	for i := range all {
		all[i].LastHeartbeatTime = metav1.NewTime(now)
		all[i].LastTransitionTime = metav1.NewTime(now)
		for _, old := range before {
			if old.Type == all[i].Type && old.Status == all[i].Status {
				all[i].LastTransitionTime = old.LastTransitionTime
			}
		}
	}
	return all
}

// reportStatus patches the kubelet's own conditions if they changed or the last report is old: the
// strategic merge, keyed by type, keeps the conditions of others.
func (k *Kubelet) reportStatus(ctx context.Context) error {
	node, err := k.node(ctx)
	if err != nil {
		return err
	}
	ready, now := k.networked(node), time.Now()
	if ready == kube.Ready(node) && now.Sub(k.reported) < k.options.StatusPeriod {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{
		"conditions": conditions(node.Status.Conditions, ready, now),
	}})
	if err != nil {
		return fmt.Errorf("encode the status: %w", err)
	}
	_, err = k.client.CoreV1().Nodes().Patch(ctx, k.options.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err == nil {
		k.ready, k.reported = ready, now
	}
	return err
}

// node reads the Node from the API server's cache, which costs etcd nothing.
func (k *Kubelet) node(ctx context.Context) (*corev1.Node, error) {
	return k.client.CoreV1().Nodes().Get(ctx, k.options.Name, metav1.GetOptions{ResourceVersion: "0"})
}

// renewLease renews the Lease, or creates it if there is none; never for a deleted Node, whose
// Lease would be garbage at once.
func (k *Kubelet) renewLease(ctx context.Context) error {
	leases := k.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now := metav1.NowMicro()
	patch := fmt.Appendf(nil, `{"spec":{"renewTime":%q}}`, now.UTC().Format(metav1.RFC3339Micro))
	_, err := leases.Patch(ctx, k.options.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	node, err := k.node(ctx)
	if err != nil {
		return err
	}
	_, err = leases.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: k.options.Name,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID,
			}},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       ptr.To(k.options.Name),
			LeaseDurationSeconds: ptr.To[int32](leaseSeconds),
			RenewTime:            &now,
		},
	}, metav1.CreateOptions{})
	return err
}
