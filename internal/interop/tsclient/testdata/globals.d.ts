// What the samples in documents use and do not declare.

import type { ReactNode } from "react";
import type { Client, Member as ClientMember, PenstockError } from "../src/index.ts";
import type { Contract as AContract, Note as ANote } from "./contract.ts";

declare global {
  type Contract = AContract;
  type Member = ClientMember;
  type Note = ANote;
  interface JoinRoom { room: string }
  interface RoomJoined { users: string[] }
  interface Said { user: string; text: string; at: string }

  const createClient: typeof import("../src/index.ts").createClient;
  const client: Client<AContract>;
  const url: string;
  const rows: number[];
  const texts: string[];
  const controller: AbortController;
  const bar: { value: number };
  const page: { textContent: string; append(text: string): void };
  const banner: { hidden: boolean };

  function show(...what: unknown[]): void;
  function warn(text: string): void;
  function reload(): void;
  function render(row: { id: number }): Promise<void>;
  function ask(question: string, signal: AbortSignal): Promise<boolean>;
  function countdown(ms: number): void;
  function showSignIn(error: PenstockError | undefined): void;
  function showReloadButton(): void;
  function Texts(props: { texts: string[]; offline: boolean }): ReactNode;
}
