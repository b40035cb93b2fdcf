package converge

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/lb"
)

// portErrorProtocol is the error of a port in the status; the API wants such names.
const portErrorProtocol = "underlay.dev/UnsupportedProtocol"

// Status is the part of the status that tells how to reach the Service.
func Status(spec lb.Spec, have lb.State) corev1.LoadBalancerStatus {
	var status corev1.LoadBalancerStatus
	for _, point := range lb.Ingress(spec, have) {
		in := corev1.LoadBalancerIngress{Hostname: point.Hostname, Ports: portStatus(spec)}
		if point.IP.IsValid() {
			mode := corev1.LoadBalancerIPModeVIP
			if point.Proxy {
				mode = corev1.LoadBalancerIPModeProxy
			}
			in.IP, in.IPMode = point.IP.String(), &mode
		}
		status.Ingress = append(status.Ingress, in)
	}
	return status
}

// portStatus is empty unless a port is not served; then it holds every port, as the API asks for.
func portStatus(spec lb.Spec) []corev1.PortStatus {
	if len(spec.Unserved) == 0 {
		return nil
	}
	var ports []corev1.PortStatus
	for _, p := range spec.Served {
		ports = append(ports, corev1.PortStatus{Port: int32(p.Number), Protocol: corev1.Protocol(p.Protocol)})
	}
	reason := portErrorProtocol
	for _, p := range spec.Unserved {
		ports = append(ports, corev1.PortStatus{Port: int32(p.Number), Protocol: corev1.Protocol(p.Protocol), Error: &reason})
	}
	return ports
}
